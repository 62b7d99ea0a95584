// SPDX-License-Identifier: Apache-2.0
// A PostgreSQL server of the tests' own: in a temporary folder, behind a Unix socket, ended with the tests.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {

// Not thread-safe.
class TestPostgres {
 public:
  // One for the whole test program, started when it is first asked for. Null: this machine has no PostgreSQL.
  static TestPostgres* shared();
  ~TestPostgres();

  // The URL of a database that is empty.
  std::string new_database();
  // Runs the statement in the database of that URL. Returns the first column of its first row, if there is
  // one.
  static std::string run(const std::string& url, const std::string& statement);
  // Ends it without a farewell, as a crash would.
  void kill();
  void start();
  // All its processes stand still, with their connections; go_on() ends that.
  void pause();
  void go_on();

 private:
  explicit TestPostgres(std::string binaries);
  std::string url(const std::string& database) const;
  void signal_all(int signal) const;

  TestFolder folder_;
  std::string binaries_;
  pid_t process_ = 0;
  int databases_ = 0;
};

}  // namespace loci
