loci_library(core
  SOURCES core.cc core_admission.cc core_check.cc core_commit.cc core_schedule.cc
  DEPENDS loci_policy loci_memory loci_base fmt::fmt)
