// Rules that Axolotl's and LLaMA-Factory's keys share: most of them are Hugging Face's.
#include <fmt/format.h>

#include "config_import.h"
#include "config_keys.h"

namespace rondo::train::config {

void translate_optimizer(Import& import, const std::string& theirs) {
  const std::string value = import.text(theirs);
  const bool is_rate = theirs.starts_with("lr_");
  if (is_off(value)) return import.leave_out(theirs, "it is empty");
  if (is_rate) {
    import.take(theirs, "lr_scheduler_type", value);
    return;
  }
  // Variants that differ in where the state lies or how the kernel is written, not in what they compute.
  for (const char* variant : {"adamw_hf", "adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "paged_adamw",
                              "paged_adamw_32bit", "adamw_torch_xla"}) {
    if (value != variant) continue;
    import.take(theirs, "optim", "adamw",
                value == "adamw_torch" ? "" : "the same update; where its state lies is planned");
    return;
  }
  import.take(theirs, "optim", value);
}

void translate_max_steps(Import& import, const std::string& theirs) {
  if (import.text(theirs).starts_with('-')) return import.leave_out(theirs, "the epochs decide");
  if (is_off(import.text(theirs))) return import.leave_out(theirs, "it is off");
  import.take(theirs, "max_steps", import.text(theirs));
}

void translate_dtype(Import& import, const std::string& theirs) {
  if (!import.is_on(theirs)) return import.leave_out(theirs, "it is off");
  const bool half = theirs == "fp16" || theirs == "float16";
  import.take(theirs, "dtype", half ? "fp16" : "bf16", import.text(theirs) == "auto" ? "whatever the card is" : "");
}

void translate_report(Import& import, const std::string& theirs) {
  if (!import.is_on(theirs)) return import.leave_out(theirs, "it is off");
  import.take(theirs, "report_to", joined_text(import.given(theirs)));
}

void translate_strategy(Import& import, const std::string& theirs) {
  const std::string value = import.text(theirs);
  const bool saves = theirs.starts_with("save");
  const std::string ours = saves ? "save_strategy" : "eval_strategy";
  if (find_key(kTrain, ours) != nullptr && !is_off(value)) {
    import.take(theirs, ours, value);
    return;
  }
  if (value == "steps") return import.leave_out(theirs, "steps are the only kind");
  if (is_off(value)) {
    if (!saves) return import.leave_out(theirs, "there is an evaluation where there is data for it");
    import.take(theirs, "save_steps", "0");
    return;
  }
  import.refuse(theirs,
                saves ? "checkpoints come by steps: give save_steps" : "evaluations come by steps: give eval_steps");
}

void take_targets(Import& import, const std::string& theirs) {
  const std::string names = joined_text(import.given(theirs));
  if (names.empty()) return import.leave_out(theirs, "it is empty");
  if (names.find_first_of("\\()[]|*+?^$") != std::string::npos) {
    import.refuse(theirs, fmt::format("{}: a regular expression; give lora_target names such as q_proj, or adapters go "
                                      "to all linear layers",
                                      names));
    return;
  }
  import.take(theirs, "lora_target", names);
}

void translate_resume(Import& import, const std::string& theirs) {
  if (!import.is_on(theirs)) return import.leave_out(theirs, "it is off");
  import.take(theirs, "resume_from_checkpoint", theirs.starts_with("auto") ? "auto" : import.text(theirs));
}

void translate_steps(Import& import, const std::string& theirs) {
  const std::string value = import.text(theirs);
  if (is_off(value)) return import.leave_out(theirs, "it is off");
  import.take(theirs, theirs, value);
}

}  // namespace rondo::train::config
