// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/postgres_testing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <pqxx/pqxx>
#include <vector>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr uid_t kNobody = 65534;

// Where Debian puts the newest version's programs.
std::string find_binaries() {
  std::string newest;
  std::error_code error;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", error)) {
    const std::string folder = version.path() / "bin";
    if (std::filesystem::exists(folder + "/initdb", error)) newest = std::max(newest, folder);
  }
  return newest;
}

// The process of a command; PostgreSQL refuses to be root, so then it is nobody. It ends with this process.
pid_t spawn(std::vector<std::string> command, const std::string& log) {
  if (::geteuid() == 0) {
    const std::string nobody = std::to_string(kNobody);
    std::vector<std::string> drop = {"setpriv",        "--reuid=" + nobody, "--regid=" + nobody,
                                     "--clear-groups", "--pdeathsig=KILL",  "--"};
    command.insert(command.begin(), drop.begin(), drop.end());
  }
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  LOCI_CHECK(child >= 0, "a test can start a process");
  if (child > 0) return child;
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

TestPostgres* TestPostgres::shared() {
  static const std::unique_ptr<TestPostgres> server = [] {
    std::string binaries = find_binaries();
    return std::unique_ptr<TestPostgres>(binaries.empty() ? nullptr : new TestPostgres(std::move(binaries)));
  }();
  return server.get();
}

TestPostgres::TestPostgres(std::string binaries) : binaries_(std::move(binaries)) {
  if (::geteuid() == 0) {
    const bool owned = ::chown(folder_.path().c_str(), kNobody, kNobody) == 0;
    LOCI_CHECK(owned, "root can give a folder away");
  }
  // Nothing here outlives the machine, so nothing is synchronised with the disk.
  const pid_t made = spawn({binaries_ + "/initdb", "-D", folder_.file("data"), "-U", "loci", "-A", "trust",
                            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"},
                           folder_.file("initdb.log"));
  int status = 0;
  ::waitpid(made, &status, 0);
  LOCI_CHECK(status == 0, "initdb makes a database");
  start();
}

TestPostgres::~TestPostgres() { kill(); }

std::string TestPostgres::url(const std::string& database) const {
  return fmt::format("postgresql:///{}?host={}&user=loci", database, folder_.path().string());
}

void TestPostgres::start() {
  LOCI_CHECK(process_ == 0, "it does not run yet");
  process_ = spawn({binaries_ + "/postgres", "-D", folder_.file("data"), "-k", folder_.path(), "-c",
                    "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"},
                   folder_.file("server.log"));
  const std::string ping = url("postgres");
  for (int i = 0; PQping(ping.c_str()) != PQPING_OK; ++i) {
    LOCI_CHECK(i < 1'200, "PostgreSQL starts within a minute");
    ::usleep(50'000);
  }
}

std::string TestPostgres::run(const std::string& url, const std::string& statement) {
  pqxx::connection connection(url);
  const pqxx::result found = pqxx::nontransaction(connection).exec(statement);
  return found.empty() ? std::string() : found[0][0].c_str();
}

void TestPostgres::kill() {
  if (process_ == 0) return;
  ::kill(process_, SIGQUIT);
  ::waitpid(process_, nullptr, 0);
  process_ = 0;
}

// The server first, so that it begins no process meanwhile.
void TestPostgres::signal_all(int signal) const {
  ::kill(process_, signal);
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", process_));
  for (pid_t child = 0; children >> child;) ::kill(child, signal);
}

void TestPostgres::pause() { signal_all(SIGSTOP); }
void TestPostgres::go_on() { signal_all(SIGCONT); }

std::string TestPostgres::new_database() {
  const std::string name = fmt::format("test{}", databases_++);
  pqxx::connection connection(url("postgres"));
  pqxx::nontransaction session(connection);
  session.exec("CREATE DATABASE " + name);
  return url(name);
}

}  // namespace loci
