// Keys of state spaces, and of blocks that are one half alone.
#pragma once

#include <string>

#include "key_reader.h"
#include "rondo/model/config.h"
#include "stored_file.h"

namespace rondo::gguf {

/// Of a family that lists_blocks(): which blocks attend, and by how many heads of keys. The last blocks may predict
/// further tokens and are not the model's. `config` has the number of layers.
void read_kinds_of_blocks(KeyReader& keys, const std::string& prefix, model::ModelConfig& config);

/// Granite 4, Bamba, Falcon-H1, Nemotron-H; nothing of others. Follows the one above.
void read_state_space(KeyReader& keys, const StoredFile& file, const std::string& prefix, model::ModelConfig& config);

/// Under granitehybrid's name a model that turns, has no experts and no factors is a Bamba. Follows read_experts() and
/// the factors.
void tell_bamba(KeyReader& keys, const std::string& prefix, model::ModelConfig& config);

/// Of Nemotron-H: which blocks have experts, and what their readers take for granted.
void read_lone_experts(KeyReader& keys, const std::string& prefix, model::ModelConfig& config);

}  // namespace rondo::gguf
