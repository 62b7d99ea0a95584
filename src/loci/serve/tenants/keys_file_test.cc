// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/keys_file.h"

#include <gtest/gtest.h>

#include <string>

namespace loci {
namespace {

std::string hash_of(std::string_view key) { return to_text(hash_api_key(key)); }

std::string key_table(const std::string& name, const std::string& more = "") {
  return "[[keys]]\nname = \"" + name + "\"\nhash = \"" + hash_of(name) + "\"\n" + more;
}

TEST(ApiKey, IsLongAndNeverTheSame) {
  const std::string a = make_api_key().value(), b = make_api_key().value();
  EXPECT_EQ(a.size(), 48u);
  EXPECT_TRUE(a.starts_with("loci-"));
  EXPECT_NE(a, b);
  EXPECT_EQ(a.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"),
            std::string::npos);
}

TEST(ApiKey, HashesThereAndBack) {
  const KeyHash hash = hash_api_key("secret");
  EXPECT_EQ(parse_key_hash(to_text(hash)).value(), hash);
  EXPECT_FALSE(hash == hash_api_key("secret "));
  // BLAKE2b-256 of "abc", as published.
  EXPECT_EQ(to_text(hash_api_key("abc")),
            "blake2b-256:bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  for (const char* wrong : {"", "abc", "sha256:00", "blake2b-256:", "blake2b-256:zz"}) {
    EXPECT_FALSE(parse_key_hash(wrong).ok()) << wrong;
  }
  EXPECT_FALSE(parse_key_hash(to_text(hash) + "00").ok());
  EXPECT_FALSE(parse_key_hash(to_text(hash).substr(0, 75)).ok());
}

TEST(KeysFile, ReadsKeysAndLimits) {
  const KeysFile file = parse_keys_file(
                            "[limits]\nrequests_per_minute = 60\nweight = 2\n"
                            "[tenants.alice]\ntokens_per_minute = 9000\nweight = 5\n" +
                            key_table("alice") + key_table("phone", "tenant = \"alice\"\n") +
                            key_table("root", "operator = true\n"))
                            .value();
  ASSERT_EQ(file.keys.size(), 3u);
  EXPECT_EQ(file.keys[0].tenant, "alice");
  EXPECT_EQ(file.keys[1].tenant, "alice");
  EXPECT_TRUE(file.keys[2].is_operator);
  EXPECT_EQ(file.limits_of("alice"),
            (TenantLimits{
                .requests_per_minute = 60, .tokens_per_minute = 9000, .concurrent_reads = 128, .weight = 5}));
  EXPECT_EQ(file.limits_of("root"),
            (TenantLimits{.requests_per_minute = 60, .concurrent_reads = 128, .weight = 2}));
  EXPECT_TRUE(parse_keys_file("").value().keys.empty());
  EXPECT_TRUE(parse_keys_file("keys = []\n").value().keys.empty());
}

TEST(KeysFile, ReadsWhatATenantMayStore) {
  const KeysFile file = parse_keys_file(
                            "[limits]\nstored_bytes = \"512MiB\"\n"
                            "[tenants.alice]\nstored_conversations = 7\nstored_bytes = 1000\n")
                            .value();
  EXPECT_EQ(file.limits_of("bob").stored_bytes, 512u << 20);
  EXPECT_EQ(file.limits_of("bob").stored_conversations, 100'000u);
  EXPECT_EQ(file.limits_of("alice").stored_bytes, 1'000u);
  EXPECT_EQ(file.limits_of("alice").stored_conversations, 7u);
  EXPECT_EQ(parse_keys_file("").value().limits_of("bob").stored_bytes, 1u << 30);
  EXPECT_EQ(parse_keys_file("").value().limits_of("bob").concurrent_reads, 128u);
  EXPECT_EQ(parse_keys_file("[tenants.bob]\nweight = 2\n").value().limits_of("bob").concurrent_reads, 128u);
  EXPECT_EQ(TenantLimits().concurrent_reads, std::nullopt) << "without a file";
  EXPECT_EQ(parse_keys_file("[limits]\nconcurrent_reads = 5\n").value().limits_of("bob").concurrent_reads,
            5u);
}

void refused(const std::string& text, const std::string& field, const std::string& part) {
  const Result<KeysFile> file = parse_keys_file(text);
  ASSERT_FALSE(file.ok()) << text;
  EXPECT_EQ(file.status().field(), field) << file.status().to_string();
  EXPECT_NE(file.status().message().find(part), std::string::npos) << file.status().to_string();
}

TEST(KeysFile, SaysWhatIsWrongAndWhere) {
  refused("[[keys]\n", "", "line 1");
  refused("\n[limits]\nweight = 0\n", "weight", "line 3: expected a whole number from 1 to 1000, found 0");
  refused("[limits]\nqueue_percent = 101\n", "queue_percent", "from 1 to 100");
  refused("[limits]\nconcurrent_reads = 0\n", "concurrent_reads", "a whole number from 1");
  refused("[limits]\nrequests_per_minute = -1\n", "requests_per_minute", "found -1");
  refused("[limits]\nrequests_per_minute = \"many\"\n", "requests_per_minute", "found 'many'");
  refused("[limits]\nrequests_per_minute = 1.5\n", "requests_per_minute", "another type");
  refused("[limits]\nstored_bytes = \"-1GiB\"\n", "stored_bytes",
          "expected a size above 0, as 1073741824 or \"1GiB\", found '-1GiB'");
  refused("[tenants.\"a\\nb\"]\n", "tenants", "found 'a?b'");
  refused("[limits]\nspeed = 1\n", "speed", "line 2: unknown field");
  refused("[limits]\nstored_bytes = 0\n", "stored_bytes", "line 2: expected a size above 0");
  refused("[limits]\nstored_bytes = \"much\"\n", "stored_bytes", "1GiB");
  refused("[limits]\nstored_conversations = 0\n", "stored_conversations", "a whole number from 1");
  refused("[tenants.a]\nspeed = 1\n", "speed", "[tenants.a]");
  refused("[tenants.\"a b\"]\n", "tenants", "letters");
  refused("keys = 3\n", "keys", "line 1: expected tables, each under [[keys]], found 3");
  refused("[[keys]]\nname = \"a\"\n", "hash", "blake2b-256");
  refused("[[keys]]\nname = \"a\"\nhash = \"loci-pasted-key\"\n", "hash", "blake2b-256");
  refused("[[keys]]\nhash = \"" + hash_of("x") + "\"\n", "name", "1 to 64");
  refused(key_table("a") + key_table("a"), "name", "two keys have the name 'a'");
  refused("[[keys]]\nname = \"a\"\nhash = \"" + hash_of("b") + "\"\n" + key_table("b"), "hash", "same key");
}

TEST(KeysFile, NeverRepeatsWhatMayBeAKey) {
  const Result<KeysFile> file = parse_keys_file("[[keys]]\nname = \"a\"\nhash = \"loci-pasted-key\"\n");
  EXPECT_EQ(file.status().to_string().find("pasted"), std::string::npos);
}

TEST(KeysFile, AddsAndRemovesWithoutTouchingTheRest) {
  const std::string begin = "# ours\n[limits]\nweight = 2  # twice\n\n" + key_table("first") +
                            "# the second one's\n[tenants.second]\nweight = 3\n";
  const KeyEntry entry{.name = "second",
                       .tenant = "t",
                       .hash = hash_api_key("k"),
                       .is_operator = true,
                       .created = "2026-01-31"};
  const std::string added = add_key(begin, entry).value();
  EXPECT_TRUE(added.starts_with(begin));
  const KeysFile file = parse_keys_file(added).value();
  ASSERT_EQ(file.keys.size(), 2u);
  EXPECT_EQ(file.keys[1].name, "second");
  EXPECT_EQ(file.keys[1].tenant, "t");
  EXPECT_EQ(file.keys[1].hash, entry.hash);
  EXPECT_TRUE(file.keys[1].is_operator);
  EXPECT_FALSE(add_key(added, entry).ok());  // the name is taken

  EXPECT_EQ(remove_key(added, "second").value(), begin + "\n");
  const std::string without_first = remove_key(added, "first").value();
  EXPECT_EQ(parse_keys_file(without_first).value().keys.size(), 1u);
  EXPECT_NE(without_first.find("# ours"), std::string::npos);
  EXPECT_NE(without_first.find("# the second one's\n[tenants.second]"), std::string::npos) << without_first;
  EXPECT_EQ(parse_keys_file(without_first).value().tenants.at("second").weight, 3u);
  EXPECT_EQ(remove_key(added, "third").status().code(), StatusCode::kNotFound);
}

TEST(KeysFile, RefusesToEditWhatItWouldBreak) {
  const std::string in_line = "keys = [{name = \"a\", hash = \"" + hash_of("a") +
                              "\"}, {name = \"b\", hash = \"" + hash_of("b") + "\"}]\n";
  ASSERT_EQ(parse_keys_file(in_line).value().keys.size(), 2u);
  EXPECT_EQ(remove_key(in_line, "a").status().message(),
            "the key is not written as a [[keys]] table of its own, so it cannot be removed without changing "
            "others: remove it by hand");
  EXPECT_EQ(
      add_key(in_line, {.name = "c", .tenant = "c", .hash = hash_api_key("c")}).status().message(),
      "the file's keys are not written as [[keys]] tables, so none can be added at its end: add this one "
      "by hand");
}

}  // namespace
}  // namespace loci
