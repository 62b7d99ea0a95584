# SPDX-License-Identifier: Apache-2.0
# loci_text: tokenizer, chat template and grammars.
loci_library(text
  SOURCES chat_template.cc ascii_classes.cc gbnf.cc grammar.cc tokenizer.cc tokenizer_json.cc utf8.cc vocabulary.cc
  DEPENDS loci_gguf loci_text_rust fmt::fmt)

loci_test(text_test PUBLISHED SOURCES chat_template_test.cc tokenizer_json_test.cc tokenizer_test.cc utf8_test.cc
  DEPENDS loci_text nlohmann_json::nlohmann_json loci_gguf_testing)
if(LOCI_TESTS)
  # A real vocabulary, kept compressed.
  set(packed ${CMAKE_SOURCE_DIR}/tests/data/text/ggml-vocab-gpt-2.gguf.gz)
  set(unpacked ${CMAKE_BINARY_DIR}/testdata/ggml-vocab-gpt-2.gguf)
  add_custom_command(OUTPUT ${unpacked}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/testdata
    COMMAND gzip -dc ${packed} > ${unpacked}
    DEPENDS ${packed}
    COMMENT "Unpacking the vocabulary of GPT-2")
  add_custom_target(text_testdata DEPENDS ${unpacked})
endif()
if(TARGET text_test)
  add_dependencies(text_test text_testdata)
endif()

loci_test(grammar_test PUBLISHED SOURCES ascii_classes_test.cc gbnf_test.cc grammar_test.cc grammar_walk_test.cc DEPENDS loci_text nlohmann_json::nlohmann_json loci_gguf_testing)
if(TARGET grammar_test)
  add_dependencies(grammar_test text_testdata)
endif()

loci_benchmark(grammar_benchmark SOURCES grammar_benchmark.cc
  DEPENDS loci_text nlohmann_json::nlohmann_json loci_gguf_testing)
loci_fuzzer(grammar_fuzz SOURCES grammar_fuzz.cc DEPENDS loci_text nlohmann_json::nlohmann_json loci_gguf_testing)
loci_fuzzer(tokenizer_fuzz SOURCES tokenizer_fuzz.cc DEPENDS loci_text nlohmann_json::nlohmann_json loci_gguf_testing)
loci_fuzzer(chat_template_fuzz SOURCES chat_template_fuzz.cc DEPENDS loci_text nlohmann_json::nlohmann_json loci_gguf_testing)
loci_fuzzer(tokenizer_json_fuzz SOURCES tokenizer_json_fuzz.cc DEPENDS loci_text)
loci_fuzzer(vocabulary_fuzz SOURCES vocabulary_fuzz.cc DEPENDS loci_text)
if(LOCI_FUZZERS)
  add_executable(vocabulary_corpus vocabulary_corpus.cc)
  target_link_libraries(vocabulary_corpus PRIVATE loci_gguf_testing)
  add_dependencies(all_fuzzers vocabulary_corpus)
endif()
