// SPDX-License-Identifier: Apache-2.0
// `loci profile MODEL`.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/device_flags.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/paths.h"
#include "loci/cli/profile_svg.h"
#include "loci/cli/pull/resolve_model.h"
#include "loci/cli/result_file.h"
#include "loci/cli/status_text.h"
#include "loci/compute/hidden_form.h"
#include "loci/compute/make_backend.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/model/model.h"
#include "loci/policy/hidden_share.h"
#include "loci/server/profile/profile_disk.h"
#include "loci/server/profile/profile_file.h"
#include "loci/server/profile/profile_measure.h"

namespace loci {
namespace {

constexpr int kBusyPercent = 10;

struct ProfileFlags {
  std::string model;
  std::string output;  // empty: the user's own file of the model
  std::string disk;    // empty: where the output is
  bool no_disk = false;
  std::string svg;  // file; empty: none
  LoadOptions load;
  BackendOptions backend;
  std::uint32_t max_batch_tokens = 512;
};

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

std::string describe_link(const LinkCost& link) {
  return fmt::format("{}/s, {} before the first byte", format_bytes(link.bytes_per_second),
                     format_duration(link.latency));
}

// Bytes of a block.
struct BlockSizes {
  std::uint64_t kv = 0;
  std::uint64_t hidden = 0;  // 0: not smaller, or the backend does not take them
};

std::string describe_hidden(const CostModel& model, const BlockSizes& sizes) {
  const Nanos projected = std::max<Nanos>(model.project_block(), 1);
  return fmt::format(
      "{} ({:.2f} of keys and values): projected in {}, loaded in {} from disk; they pay on links "
      "below {}/s",
      format_bytes(sizes.hidden), static_cast<double>(sizes.hidden) / static_cast<double>(sizes.kv),
      format_duration(projected), format_duration(model.load(Tier::kDisk, sizes.hidden)),
      format_bytes(hidden_pays_below(model, sizes.kv)));
}

std::string describe(const CostProfile& profile, const BlockSizes& sizes) {
  const std::uint64_t block_bytes = sizes.kv;
  const CostCurves& curves = profile.curves;
  const CostModel model(curves);
  std::string out =
      fmt::format("{} on {} ({})\n", profile.model, profile.machine.cpu, profile.machine.backend);
  const auto row = [&out](std::string_view name, const std::string& value) {
    out += fmt::format("  {:<22}{}\n", name, value);
  };
  row("a pass of one row", format_duration(curves.pass));
  row("a prompt's token", format_duration(curves.token) + " without attention");
  for (std::size_t i = 5; i < curves.attention.size(); i += 2) {
    row(fmt::format("attention at {}", format_count(std::uint64_t{1} << i)),
        format_duration(curves.attention[i]));
  }
  row("host to device", describe_link(curves.host_load));
  row("device to host", describe_link(curves.host_save));
  if (!profile.disk_directory.empty()) {
    row("disk, reading", describe_link(curves.disk_read));
    row("disk, writing", describe_link(curves.disk_write));
    for (const ReadRate& rate : profile.disk_reads)
      row(fmt::format("  reads of {}", format_bytes(rate.bytes)), format_bytes(rate.bytes_per_second) + "/s");
  }
  if (curves.host_charge > 0 || curves.disk_charge > 0) {
    row("loading takes",
        fmt::format("{} of computing a MiB from host memory, {} from disk",
                    format_duration(curves.host_charge), format_duration(curves.disk_charge)));
  }
  const std::uint32_t deep = 1u << (curves.attention.size() - 1);
  row("a block of 32 tokens",
      fmt::format(
          "{}: computed in {} at the begin and {} behind {} tokens, loaded in {} from host memory and {} "
          "from disk",
          format_bytes(block_bytes), format_duration(model.compute(0, kBlockTokens)),
          format_duration(model.compute(deep, kBlockTokens)), format_count(deep),
          format_duration(model.load(Tier::kHost, block_bytes)),
          format_duration(model.load(Tier::kDisk, block_bytes))));
  if (curves.projection > 0) row("as hidden states", describe_hidden(model, sizes));
  return out;
}

Result<CostProfile> measure(const ProfileFlags& flags, BlockSizes& sizes) {
  LOCI_ASSIGN_OR_RETURN(const std::string path, resolve_model(flags.model, WhenMissing::kFail, say));
  LOCI_ASSIGN_OR_RETURN(const OpenedSource opened, open_model_source(path, flags.load));
  LOCI_ASSIGN_OR_RETURN(const ModelSpec spec, read_model_spec(*opened.source));
  say(fmt::format("loading {}", path));
  BackendOptions wanted = flags.backend;
  wanted.cuda.max_batch_tokens = flags.max_batch_tokens;
  wanted.cuda.max_spans = flags.max_batch_tokens;
  // A chunk is measured behind the whole context.
  wanted.cuda.context_tokens = spec.context_length + std::max(flags.max_batch_tokens, 512u);
  LOCI_ASSIGN_OR_RETURN(MadeBackend made, make_backend(spec, wanted));
  say(fmt::format("device: {}{}", made.chosen, made.why.empty() ? "" : " (" + made.why + ")"));
  const std::unique_ptr<Backend> backend = std::move(made.backend);
  sizes.kv = backend->info().block_bytes;
  if (const Result<HiddenForm> form = hidden_form(backend->info()); form.ok()) {
    sizes.hidden = form->slice_bytes() * backend->info().layers;
  } else {
    say("no hidden states: " + form.status().message());
  }
  CostProfile profile;
  profile.machine = this_machine(backend->info());
  profile.model = path;
  profile.model_fingerprint = fingerprint_text(spec.fingerprint);
  profile.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  MeasureOptions options;
  options.batch_tokens = flags.max_batch_tokens;
  options.context_tokens = spec.context_length;
  options.say = say;
  BusyMachine others;
  LOCI_RETURN_IF_ERROR(measure_backend(*backend, options, profile));
  if (const int percent = others.percent(); percent > kBusyPercent) {
    say(
        fmt::format("warning: others took {} % of this machine meanwhile, so costs are measured too high; "
                    "measure again when it is quiet",
                    percent));
  }
  if (flags.no_disk) return profile;
  DiskMeasureOptions disk;
  disk.directory = flags.disk;
  const LayerGroup& first = backend->info().groups.front();
  disk.request_bytes = default_read_bytes(first.layer_slice_bytes, first.layers.size());
  disk.read_sizes = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
  std::erase(disk.read_sizes, disk.request_bytes);
  const Result<DiskMeasurement> measured = measure_disk(disk);
  if (!measured.ok()) return measured.status().with_context("--disk");
  profile.curves.disk_read = measured->read;
  profile.curves.disk_write = measured->write;
  profile.disk_directory = flags.disk;
  profile.disk_reads = measured->reads;
  if (backend->info().name == "cpu")
    profile.curves.disk_charge = profile.curves.host_charge + measured->charge;
  say(fmt::format("disk {}: {}/s read, {}/s written{}", flags.disk,
                  format_bytes(measured->read.bytes_per_second),
                  format_bytes(measured->write.bytes_per_second),
                  measured->direct ? "" : " (through the page cache: O_DIRECT is refused there)"));
  return profile;
}

// Measuring takes minutes, whose result would be lost.
Status check_output(const std::string& output) {
  if (!output.empty() && !can_write_profile(output))
    return invalid_argument(fmt::format("expected a file that can be written, found {}", output), "--output");
  const std::string folder = default_profile_folder();
  if (output.empty() && !can_write_profile(profile_path(folder, "any")))
    return Status(StatusCode::kUnavailable,
                  fmt::format("no file can be written in {}; give one with --output", folder));
  return {};
}

int run_profile(ProfileFlags flags) {
  if (flags.disk.empty()) flags.disk = default_profile_folder();
  BlockSizes sizes;
  Result<ResultFile> svg = ResultFile::open(flags.svg, "--svg");
  refuse_unless_ok(svg.status());
  refuse_unless_ok(check_output(flags.output));
  const Result<CostProfile> profile = measure(flags, sizes);
  Status status = profile.status();
  const std::string path = !flags.output.empty() || !profile.ok()
                               ? flags.output
                               : profile_path(default_profile_folder(), profile->model_fingerprint);
  if (status.ok()) status = write_profile(path, *profile);
  if (status.ok() && !flags.svg.empty()) status = svg->write(profile_svg(*profile, sizes.kv));
  if (!status.ok()) {
    fmt::print(stderr, "loci profile: {}\n", for_people(status));
    return 1;
  }
  fmt::print("{}written to {}{}\n", describe(*profile, sizes), path,
             flags.output.empty() ? ", where `loci serve` finds it"
                                  : fmt::format("; use it by `loci serve --profile {}`", path));
  return 0;
}

}  // namespace

void add_profile_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("profile", "measure what computing and moving state costs here");
  command->group(kMeasureGroup);
  auto flags = std::make_shared<ProfileFlags>();
  command->add_option("MODEL", flags->model, "the model, named as for `loci serve`")->required();
  command->add_option("--output", flags->output, "write to FILE instead of the user's own file of the model")
      ->type_name("FILE");
  command->add_option("--disk", flags->disk, "measure the disk of this directory")->type_name("DIR");
  command->add_flag("--no-disk", flags->no_disk, "do not measure a disk");
  command->add_option("--svg", flags->svg, "draw the costs into FILE, as a picture")->type_name("FILE");
  add_device_flags(*command, flags->backend);
  command
      ->add_option("--threads", flags->backend.cpu.threads,
                   "compute threads of a CPU; 0: one for each physical core")
      ->type_name("N");
  command
      ->add_option("--max-batch-tokens", flags->max_batch_tokens,
                   "the tokens of a full pass, as for `loci serve`")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  command->add_option_function<std::string>(
      "--quantize",
      [flags](const std::string& name) {
        const Result<TensorType> type = parse_quantize(name);
        if (!type.ok()) throw CLI::ValidationError("--quantize", type.status().message());
        flags->load.quantize = *type;
      },
      "quantise the matrices of a Hugging Face directory: q8_0, q4_0, q4_k");
  command->footer("Example:\n  loci profile default && loci serve default");
  command->callback([flags, &exit_code] { exit_code = run_profile(*flags); });
}

}  // namespace loci
