# SPDX-License-Identifier: Apache-2.0
# loci_serve_options: the table of `loci serve`'s options, and the layers that they come from.
loci_library(serve_options
  SOURCES help.cc options/cluster_options.cc options/compute_options.cc options/configuration.cc options/logging_options.cc options/network_options.cc
    options/option.cc options/option_table.cc options/otel_environment.cc options/sampling_options.cc options/scheduling_options.cc options/state_options.cc
    options/store_options.cc options/tenants_options.cc options/toml_file.cc
  DEPENDS loci_disk_flag loci_policy loci_files loci_pull loci_http loci_cluster loci_store loci_model loci_backends loci_server PkgConfig::tomlplusplus fmt::fmt CLI11::CLI11)
# Read where it is set and where it is used.
loci_library(disk_flag SOURCES options/disk_flag.cc DEPENDS loci_base fmt::fmt)
loci_test(options_test SOURCES help_test.cc options/disk_flag_test.cc options/options_test.cc options/otel_environment_test.cc DEPENDS loci_serve_options)
