// Bad command lines.
#include "workspace.h"

namespace rondo::cli {
namespace {

class BadCommandLine : public testing::TestWithParam<BadInput> {};

TEST_P(BadCommandLine, Refused_InOneLineWithoutATrace) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Verbs, BadCommandLine,
                         testing::Values(command("NoVerb", {}, {"expected a verb"}),
                                         command("UnknownVerb", {"trian"}, {"'trian'"}),
                                         command("EmptyVerb", {""}, {"unknown verb"}),
                                         command("ReportOfNothing", {"report"}, {"report", "RUN"}),
                                         command("HelpOfNoVerb", {"help", "trian"}, {"'trian'"}),
                                         command("HelpOfTwoVerbs", {"help", "train", "eval"}, {"help"}),
                                         command("FlagBeforeVerb", {"--json", "train"}, {"'--json'"}),
                                         command("VerbWithLineBreak", {"tr\nain"}, {"tr ain"})),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Keys, BadCommandLine,
    testing::Values(command("UnknownKey", train({"--learnig-rate", "1e-4"}), {"--learnig-rate", "learning_rate"}),
                    command("NothingNear", train({"--xyzzyxyzzy=1"}), {"--xyzzyxyzzy"}),
                    command("KeyOfAnotherVerb", train({"--prompt", "x"}), {"--prompt", "generate"}),
                    command("WordTooMany", train({"one.yaml", "two.yaml"}), {"'two.yaml'"}),
                    command("SingleDash", train({"-x"}), {"'-x'"}), command("BareDashes", train({"--"}), {"'--'"}),
                    command("NameMissing", train({"--=3"}), {"--"}),
                    command("ValueMissing", train({"--lr"}), {"--lr", "no value"}),
                    command("ValueMissingBeforeFlag", train({"--seed", "--shuffle"}), {"--seed", "no value"}),
                    command("BrokenUtf8", train({"--dataset=\xff\xfe"}), {"--dataset", "UTF-8"}),
                    command("BrokenUtf8InKey", train({"--\xff"}), {"unknown key"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Values, BadCommandLine,
    testing::Values(
        command("NoNumber", train({"--lr", "fast"}), {"--lr", "'fast'", "expected a number"}),
        command("NotANumber", train({"--lr=nan"}), {"--lr", "'nan'"}),
        command("Infinite", train({"--max_grad_norm=inf"}), {"--max_grad_norm", "'inf'"}),
        command("NegativeRate", train({"--lr", "-1e-4"}), {"--lr", "'-1e-4'"}),
        command("NegativeSteps", train({"--max_steps", "-1"}), {"--max_steps", "'-1'"}),
        command("Fraction", train({"--max_steps", "1.5"}), {"--max_steps", "whole number"}),
        command("Separator", train({"--max_steps=1_000"}), {"--max_steps", "'1_000'"}),
        command("PastTheRange", train({"--seed=99999999999999999999999"}), {"--seed"}),
        command("RankZero", train({"--lora_rank=0"}), {"--lora_rank", "'0'"}),
        command("DropoutOne", train({"--lora_dropout=1"}), {"--lora_dropout"}),
        command("BetaOne", train({"--adam_beta2=1"}), {"--adam_beta2"}),
        command("BatchZero", train({"--batch_size=0"}), {"--batch_size"}),
        command("BatchTimesLengthTooLarge", train({"--batch_size=65536", "--cutoff_len=1000000"}), {"cutoff_len"}),
        command("NoBoolean", train({"--shuffle=maybe"}), {"--shuffle", "'maybe'"}),
        command("UnknownMethod", train({"--finetuning_type=qlora"}), {"--finetuning_type", "lora, full or freeze"}),
        command("Fp8OnTheCpu", train({"--fp8", "--dtype=bf16"}), {"fp8", "cpu:0", "8.9"}),
        command("Fp8BesideFp32", train({"--fp8", "--dtype=fp32"}), {"--fp8", "dtype fp32", "bf16"}),
        command("UnknownDtype", train({"--dtype=fp8"}), {"--dtype", "'fp8'"}),
        command("UnknownSchedulerType", train({"--lr_scheduler_type=step"}), {"--lr_scheduler_type", "'step'"}),
        command("NoLeastRate", train({"--lr_scheduler_type=cosine_with_min_lr"}),
                {"lr_scheduler_kwargs", "min_lr_rate", "neither"}),
        command("TwoLeastRates",
                train({"--lr_scheduler_type=cosine_with_min_lr", "--lr_scheduler_kwargs=min_lr=0,min_lr_rate=0.1"}),
                {"--lr_scheduler_kwargs", "min_lr_rate", "both"}),
        command("EndAboveTheRate",
                train({"--lr_scheduler_type=polynomial", "--lr_scheduler_kwargs=lr_end=1", "--lr=1e-3"}),
                {"--lr_scheduler_kwargs", "lr_end", "0.001", "found 1"}),
        command("NoDecaySteps", train({"--lr_scheduler_type=warmup_stable_decay"}), {"num_decay_steps", "found none"}),
        command("HalfADecayStep",
                train({"--lr_scheduler_type=warmup_stable_decay", "--lr_scheduler_kwargs=num_decay_steps=0.5"}),
                {"--lr_scheduler_kwargs", "num_decay_steps", "whole number", "0.5"}),
        command("ArgumentOfAnotherSchedule", train({"--lr_scheduler_type=cosine", "--lr_scheduler_kwargs=power=2"}),
                {"--lr_scheduler_kwargs", "cosine", "power", "num_cycles"}),
        command("ArgumentOfNone", train({"--lr_scheduler_type=linear", "--lr_scheduler_kwargs=power=2"}),
                {"--lr_scheduler_kwargs", "linear", "power", "leave them out"}),
        command("ArgumentTwice",
                train({"--lr_scheduler_type=cosine", "--lr_scheduler_kwargs=num_cycles=2,num_cycles=3"}),
                {"--lr_scheduler_kwargs", "num_cycles", "twice"}),
        command("ArgumentWithoutValue", train({"--lr_scheduler_type=cosine", "--lr_scheduler_kwargs=num_cycles"}),
                {"--lr_scheduler_kwargs", "num_cycles=2"}),
        command("UnknownForm",
                train({"--lr_scheduler_type=warmup_stable_decay",
                       "--lr_scheduler_kwargs=num_decay_steps=1,decay_type=step"}),
                {"--lr_scheduler_kwargs", "decay_type", "1-sqrt", "step"}),
        command("UnknownFormat", train({"--data_format=csv"}), {"--data_format", "'csv'"}),
        command("EmptyTarget", train({"--lora_target="}), {"--lora_target"}),
        command("HoleInTargets", train({"--lora_target=q_proj,,v_proj"}), {"--lora_target", "'q_proj,,v_proj'"}),
        command("PackingIntoNothing", train({"--packing", "--cutoff_len=0"}), {"--cutoff_len", "from 2"}),
        command("PackingNoBoolean", train({"--packing=maybe"}), {"--packing", "'maybe'"}),
        command("WeightZero", train({"--dataset_weights=0"}), {"--dataset_weights", "above 0", "'0'"}),
        command("WeightNegative", train({"--dataset_weights=-1"}), {"--dataset_weights", "above 0", "'-1'"}),
        command("WeightNoNumber", train({"--dataset_weights=much"}), {"--dataset_weights", "'much'"}),
        command("WeightNotFinite", train({"--dataset_weights=inf"}), {"--dataset_weights", "'inf'"}),
        command("MoreWeightsThanSets", train({"--dataset_weights=1,2"}),
                {"--dataset_weights", "each of the 1 data sets", "found 2"}),
        command("FewerWeightsThanSets",
                {"data", "--model=model", "--dataset=chats.jsonl,chats.jsonl", "--dataset_weights=1"},
                {"--dataset_weights", "each of the 2 data sets", "found 1"}),
        command("HoleInDataSets", {"data", "--model=model", "--dataset=chats.jsonl,"}, {"--dataset", "'chats.jsonl,'"}),
        command("SecondSetMissing", {"data", "--model=model", "--dataset=chats.jsonl,nowhere.jsonl"},
                {"nowhere.jsonl"}),
        command("HistoryMaskedAndPromptTrained", train({"--mask_history", "--train_on_prompt"}),
                {"--mask_history", "train_on_prompt"}),
        command("ValSizeOneAndAHalf", train({"--val_size=1.5"}), {"--val_size", "1.5"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    NotInThisBuild, BadCommandLine,
    testing::Values(command("Staleness", train({"--staleness=2"}), {"--staleness", "'2'"}),
                    command("Schedule", train({"--schedule=zb_h2"}), {"--schedule", "'zb_h2'"}),
                    command("Optimizer", train({"--optim=lion_8bit"}), {"--optim", "'lion_8bit'"}),
                    command("Quantization", train({"--quantization_bit=3"}),
                            {"--quantization_bit", "expected 8, 4 or 0"}),
                    command("BoundaryQuantization", train({"--boundary_quantization_bit=16"}),
                            {"--boundary_quantization_bit", "0 to 8"}),
                    command("BoundaryQuantizationToFive", train({"--boundary_quantization_bit=5"}),
                            {"--boundary_quantization_bit", "expected 8, 4 or 0"}),
                    command("QuantizationOfFull", train({"--quantization_bit=4", "--finetuning_type=full"}),
                            {"--quantization_bit", "set lora"}),
                    command("QuantizationOfBlocks", train({"--quantization_bit=8", "--finetuning_type=freeze"}),
                            {"--quantization_bit", "freeze", "set lora"}),
                    command("Report", train({"--report_to=wandb"}), {"--report_to", "'wandb'"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Missing, BadCommandLine,
    testing::Values(command("Model", {"train", "--dataset=chats.jsonl", "--output_dir=out"}, {"model_name_or_path"}),
                    command("Data", {"train", "--model=model", "--output_dir=out"}, {"dataset"}),
                    command("OutputDir", {"train", "--model=model", "--dataset=chats.jsonl"}, {"output_dir"}),
                    command("Prompt", {"generate", "--model=model"}, {"prompt"}),
                    command("EvalData", {"eval", "--model=model"}, {"eval_dataset"}),
                    command("DataToShow", {"data", "--model=model"}, {"dataset"}),
                    command("ModelToPlan", {"plan"}, {"model_name_or_path"}),
                    command("ModelToProfile", {"profile"}, {"model_name_or_path"}),
                    command("StepsToProfile", {"profile", "--model=model", "--steps=1"}, {"--steps", "2"}),
                    command("Architecture", {"init", "--output_dir=out"}, {"arch"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Contradictions, BadCommandLine,
    testing::Values(command("TwoKindsOfEvaluationData", train({"--eval_dataset=chats.jsonl", "--val_size=1"}),
                            {"--val_size", "eval_dataset"}),
                    command("EvaluationOfNothing", train({"--eval_steps=1"}), {"--eval_steps"}),
                    command("AdapterForFull", train({"--finetuning_type=full", "--adapter_name_or_path=a"}),
                            {"--adapter_name_or_path"}),
                    command("ResumeAndOverwrite", train({"--resume_from_checkpoint", "--overwrite_output_dir"}),
                            {"--overwrite_output_dir"}),
                    command("TemperatureBelowZero", {"generate", "--model=model", "--prompt=x", "--temperature", "-1"},
                            {"--temperature", "'-1'"}),
                    command("TopPZero", {"generate", "--model=model", "--prompt=x", "--top_p=0"}, {"--top_p"}),
                    command("NoTokensToAdd", {"generate", "--model=model", "--prompt=x", "--max_new_tokens=0"},
                            {"--max_new_tokens"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
