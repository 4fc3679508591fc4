// Python's two ways of formatting: `'%s' % value` and `'{}'.format(value)`.
#pragma once

#include "heap.h"
#include "value.h"

namespace rondo::data::jinja {

/// `format` % `operand`: a tuple fills the places in order, a dict the named ones, anything else the only place.
Value format_percent(Heap& heap, const Value& format, const Value& operand);
Value format_braces(Heap& heap, const Value& format, const Arguments& arguments);

}  // namespace rondo::data::jinja
