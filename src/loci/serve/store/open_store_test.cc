// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/open_store.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "loci/serve/store/postgres_url.h"

namespace loci {
namespace {

TEST(LocalDatabase, IsReachedByLoopbackOrASocket) {
  ::unsetenv("PGHOST");
  ::unsetenv("PGHOSTADDR");
  for (const char* local :
       {"postgresql:///db?host=/run/postgresql", "postgresql:///db", "postgresql://ann@localhost/db",
        "postgresql://127.0.0.1:5433/db", "postgresql://127.9.9.9/db", "postgresql://[::1]:5/db",
        "postgresql://[::ffff:127.0.0.1]/db", "postgresql://localhost,127.0.0.1/db"})
    EXPECT_TRUE(is_local_database(local).value()) << local;
  for (const char* far : {"postgresql://db/loci", "postgresql://10.0.0.7/db", "postgresql://[fd00::1]/db",
                          "postgresql://localhost,db/loci", "postgresql://localhost/db?hostaddr=10.0.0.7",
                          "postgresql:///loci?host=db", "postgresql://127.example.org/db"})
    EXPECT_FALSE(is_local_database(far).value()) << far;
  ::setenv("PGHOST", "db", 1);
  EXPECT_FALSE(is_local_database("postgresql:///loci").value());
  EXPECT_TRUE(is_local_database("postgresql://localhost/loci").value());
  ::unsetenv("PGHOST");
  EXPECT_EQ(is_local_database("postgresql://h/x?no_such=1").status().code(), StatusCode::kInvalidArgument);
}

TEST(LocalDatabase, AFaultyUrlIsNotQuoted) {
  for (const char* wrong : {"postgresql://ann:%zzsecret@h/x", "postgresql://ann:secret@[::1/x",
                            "postgresql://ann:secret@[::1]x/y", "postgresql://h/x?password=a=secret"}) {
    const Status refused = is_local_database(wrong).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_TRUE(refused.message().starts_with("the URL of PostgreSQL: ")) << refused.message();
    EXPECT_EQ(refused.message().find("secret"), std::string::npos) << refused.message();
  }
}

TEST(DescribeStore, ShowsNoPassword) {
  EXPECT_EQ(describe_store("postgresql://ann:secret@host/db"), "postgresql://ann:***@host/db");
  EXPECT_EQ(describe_store("postgres://ann@host:5/db?password=secret&x=y"),
            "postgres://ann@host:5/db?password=***&x=y");
  EXPECT_EQ(describe_store("postgresql://host:5432/db"), "postgresql://host:5432/db");
  EXPECT_EQ(describe_store("/a/b:c@d"), "/a/b:c@d");
  EXPECT_TRUE(check_store_place("postgres://ann@host/db").ok());
  EXPECT_TRUE(check_store_place("a://b").message().find("found another URL") != std::string::npos);
}

}  // namespace
}  // namespace loci
