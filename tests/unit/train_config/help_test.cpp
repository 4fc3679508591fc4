// The table of keys is consistent, and the help pages and suggestions that follow from it are of use.
#include <set>

#include "config_keys.h"
#include "config_test_util.h"

namespace rondo::train {
namespace {

using testing::HasSubstr;

/// A verb's own key may have the name that is an alias of a training key (profile's steps): names come before aliases.
TEST(Table, NamesAndAliases_AreUniqueForEveryVerb) {
  for (const std::string& verb : verbs()) {
    std::set<std::string> names;
    std::set<std::string> own;
    std::set<std::string> aliases;
    for (const config::Key& key : config::keys()) {
      if (!config::accepts(config::verb_bit(verb), key)) continue;
      EXPECT_TRUE(names.insert(key.name).second) << verb << " " << key.name;
      if ((key.verbs & config::kTrain) == 0) own.insert(key.name);
      for (const std::string& alias : key.aliases) EXPECT_TRUE(aliases.insert(alias).second) << verb << " " << alias;
    }
    for (const std::string& alias : aliases) {
      EXPECT_TRUE(names.count(alias) == 0 || own.count(alias) == 1) << verb << " " << alias;
    }
    for (const std::string& name : own) EXPECT_EQ(config::find_key(config::verb_bit(verb), name)->name, name);
  }
}

TEST(Table, Defaults_PassTheirOwnChecks) {
  for (const config::Key& key : config::keys()) {
    Config config;
    const std::string text = config::value_text(config, key);
    EXPECT_TRUE(config::set_value(key, text, key.name, config).ok()) << key.name << " = " << text;
  }
}

TEST(Table, EveryKey_HasHelpAndAGroup) {
  for (const config::Key& key : config::keys()) {
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.group.empty()) << key.name;
    EXPECT_NE(key.verbs, 0U) << key.name;
  }
}

TEST(Table, DefaultsOfInit_AreThoseOfTheModelThatItMakes) {
  const model::InitOptions options;
  const Config config = *parse_arguments("init", {"--arch=llama", "--output_dir=o"});
  EXPECT_EQ(config.hidden_size, options.hidden_size);
  EXPECT_EQ(config.intermediate_size, options.intermediate_size);
  EXPECT_EQ(config.num_hidden_layers, options.num_hidden_layers);
  EXPECT_EQ(config.num_attention_heads, options.num_attention_heads);
  EXPECT_EQ(config.num_key_value_heads, options.num_key_value_heads);
  EXPECT_EQ(config.head_dim, options.head_dim);
  EXPECT_EQ(config.vocab_size, options.vocab_size);
  EXPECT_EQ(config.max_position_embeddings, options.max_position_embeddings);
  EXPECT_EQ(config.rope_theta, options.rope_theta);
  EXPECT_EQ(config.num_experts, options.num_experts);
  EXPECT_EQ(config.num_experts_per_tok, options.num_experts_per_tok);
  EXPECT_EQ(config.moe_intermediate_size, options.moe_intermediate_size);
  EXPECT_EQ(config.tie_word_embeddings, options.tie_word_embeddings);
  EXPECT_EQ(config.seed, options.seed);
  EXPECT_GE(options.vocab_size, model::kInitTokenizerSize);
}

TEST(Help, EveryVerb_ShowsItsKeysWithDefaultsAndAnExample) {
  for (const std::string& verb : verbs()) {
    const std::string page = help_text(verb);
    EXPECT_THAT(page, HasSubstr("rondo " + verb));
    EXPECT_THAT(page, HasSubstr("Example"));
    for (const config::Key& key : config::keys()) {
      if ((key.verbs & config::verb_bit(verb)) == 0) continue;
      EXPECT_THAT(page, HasSubstr("--" + key.name)) << verb;
    }
    EXPECT_THAT(help_text(""), HasSubstr("\n  " + verb + " "));
  }
  EXPECT_THAT(help_text("train"), HasSubstr("[5e-05]"));
  EXPECT_THAT(help_text("train"), HasSubstr("--learning_rate, lr\n"));
}

TEST(UnknownKey, Misspelt_IsToldTheNearestOne) {
  const auto message = [](const std::string& verb, const std::string& key) {
    return std::string(config::unknown_key(verb, "--" + key, config::normalised(key)).message());
  };
  EXPECT_THAT(message("train", "learnig-rate"), HasSubstr("did you mean learning_rate?"));
  EXPECT_THAT(message("profile", "compare"),
              HasSubstr("a key of `rondo plan` and `rondo chat`, which `rondo profile`"));
  EXPECT_THAT(message("chat", "max-steps"), HasSubstr("a key of `rondo train`, which `rondo chat`"));
  EXPECT_THAT(message("train", "lora_target_modules"), HasSubstr("did you mean lora_target?"));
  EXPECT_THAT(message("train", "dataest"), HasSubstr("did you mean dataset?"));
  EXPECT_THAT(message("generate", "max_new_token"), HasSubstr("did you mean max_new_tokens?"));
  EXPECT_THAT(message("train", "qqqqqqqq"), HasSubstr("`rondo help train` lists"));
  EXPECT_THAT(message("train", std::string(100000, 'a')), HasSubstr("`rondo help train` lists"));
}

}  // namespace
}  // namespace rondo::train
