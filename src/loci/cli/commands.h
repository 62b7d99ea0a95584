// SPDX-License-Identifier: Apache-2.0
// The subcommands of the binary. Each function adds one to `app`; when the command line names it, its
// callback runs it and sets `exit_code`.
#pragma once

namespace CLI {
class App;
}

namespace loci {

void add_serve_command(CLI::App& app, int& exit_code);
void add_chat_command(CLI::App& app, int& exit_code);
void add_forget_command(CLI::App& app, int& exit_code);
void add_cluster_command(CLI::App& app, int& exit_code);
void add_inspect_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_bench_compute_command(CLI::App& app, int& exit_code);
void add_keys_command(CLI::App& app, int& exit_code);
void add_warm_command(CLI::App& app, int& exit_code);
void add_replay_command(CLI::App& app, int& exit_code);
void add_pull_commands(CLI::App& app, int& exit_code);  // pull, list, rm
void add_profile_command(CLI::App& app, int& exit_code);
void add_route_command(CLI::App& app, int& exit_code);
void add_options_command(CLI::App& app, int& exit_code);
void add_sim_command(CLI::App& app, int& exit_code);

}  // namespace loci
