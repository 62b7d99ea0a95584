loci_library(text
  SOURCES chat_template.cc tokenizer.cc utf8.cc vocabulary.cc
  DEPENDS loci_gguf loci_text_rust fmt::fmt)
