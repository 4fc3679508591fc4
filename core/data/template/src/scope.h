// Which variable a name means, decided before rendering as Jinja2's compiler does.
//
// A template, a macro, a loop's body, a `with`, a captured block each have a frame. A name that a frame stores lives in
// that frame, from the frame's start: there it holds the outer variable's value (or nothing) until the store. Any other
// name is that of the nearest frame around it that knows the name, else the rendering's context. So a name that a frame
// sets anywhere hides the context's from all loops and macros inside the frame, even from those that stand before the
// set.
#pragma once

#include "ast.h"

namespace rondo::data::jinja {

/// Fills in the frames and slots. Throws Failure for filters and tests that do not exist, and for stores to `loop`.
void bind_names(Template& parsed);

}  // namespace rondo::data::jinja
