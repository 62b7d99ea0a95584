// SPDX-License-Identifier: Apache-2.0
// Tokenizers (Hugging Face `tokenizers`), chat templates (`minijinja`) and grammars that constrain output
// (`llguidance`) behind a C ABI.
//
// Every function but the destroying ones returns 0, or 1 with a message in *error, which the caller
// frees; *out is written on success alone. Texts are UTF-8 with a length, never NUL-terminated; what is
// not UTF-8 is an error. Nothing unwinds out of a function. Handles are immutable and may be used by many
// threads at once, but a matcher, which one thread at a time may use. Results belong to the caller, who
// frees them with the matching function.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loci_text_tokenizer loci_text_tokenizer;
typedef struct loci_text_template loci_text_template;

typedef struct {
  const uint8_t* data;
  size_t size;
} loci_text_view;

typedef struct {
  uint8_t* data;
  size_t size;
} loci_text_bytes;

typedef struct {
  uint32_t* data;
  size_t size;
} loci_text_ids;

enum {
  LOCI_TEXT_BYTE_LEVEL_BPE = 0,        /* GGUF's "gpt2": merges, and a pre-tokenizer by name */
  LOCI_TEXT_SENTENCE_PIECE = 1,        /* GGUF's "llama": scores, byte fallback */
  LOCI_TEXT_UNIGRAM = 2,               /* GGUF's "t5": scores are logarithms of probabilities */
  LOCI_TEXT_SENTENCE_PIECE_MERGES = 3, /* GGUF's "gemma4": merges over "▁" for blanks, byte fallback */
};

typedef struct {
  int32_t kind;
  int32_t add_space_prefix;     /* all but LOCI_TEXT_BYTE_LEVEL_BPE: "▁" before each piece of text */
  int32_t remove_extra_spaces;  /* LOCI_TEXT_UNIGRAM: blanks at the ends go, several become one */
  int32_t special_takes_blanks; /* Phi-3: blanks after special tokens belong to them, a few excepted */
  loci_text_view pre_tokenizer; /* LOCI_TEXT_BYTE_LEVEL_BPE: GGUF's name, such as "smollm" */
  loci_text_view chars_map;     /* LOCI_TEXT_UNIGRAM: SentencePiece's precompiled map; may be empty */
  const loci_text_view* tokens; /* [token_count] */
  const int32_t* token_types;   /* [token_count], GGUF's numbers */
  const float* scores;          /* [token_count]; LOCI_TEXT_SENTENCE_PIECE, LOCI_TEXT_UNIGRAM */
  size_t token_count;
  const loci_text_view* merges; /* [merge_count], "left right"; kinds with merges */
  size_t merge_count;
  int64_t unknown_token; /* -1 for none */
} loci_text_vocabulary;

int loci_text_tokenizer_create(const loci_text_vocabulary* vocabulary, loci_text_tokenizer** out,
                               loci_text_bytes* error);

/* A tokenizer.json. control_texts and control_ids name tokens that control beside those that the file calls
 * special; tokens added to the vocabulary from token_limit on are left out (0: none). */
int loci_text_tokenizer_from_json(loci_text_view json, const loci_text_view* control_texts,
                                  size_t control_text_count, const uint32_t* control_ids,
                                  size_t control_id_count, uint32_t token_limit, loci_text_tokenizer** out,
                                  loci_text_bytes* error);

typedef struct {
  int32_t byte_level;    /* tokens are spelled in GPT-2's alphabet; otherwise "▁" is a blank */
  int32_t strips_space;  /* a blank at the beginning of what tokens spell was put there by encoding */
  int64_t unknown_token; /* -1 for none, as below */
  int64_t leading_token; /* what the post-processor puts before a text */
  size_t token_count;
} loci_text_description;
void loci_text_tokenizer_describe(const loci_text_tokenizer* tokenizer, loci_text_description* out);
/* The text of a token, which lives as long as the tokenizer, and its type (GGUF's number). */
loci_text_view loci_text_tokenizer_token(const loci_text_tokenizer* tokenizer, uint32_t id, int32_t* type);

void loci_text_tokenizer_destroy(loci_text_tokenizer* tokenizer);

/* with_control 0: no text becomes a control token. */
int loci_text_tokenizer_encode(const loci_text_tokenizer* tokenizer, loci_text_view text,
                               int32_t with_control, loci_text_ids* out, loci_text_bytes* error);

enum {
  LOCI_TEXT_FIRST = 0,     /* begins a text */
  LOCI_TEXT_INNER = 1,     /* follows a control token */
  LOCI_TEXT_CONTINUED = 2, /* follows text that is encoded already: no blank is put before it */
};
/* A piece of a text, in which nothing becomes a control token. Pieces that LOCI_TEXT_CONTINUED would change
 * (those of a unigram vocabulary of GGUF) are encoded as with LOCI_TEXT_FIRST. */
int loci_text_tokenizer_encode_piece(const loci_text_tokenizer* tokenizer, loci_text_view text, int32_t place,
                                     loci_text_ids* out, loci_text_bytes* error);

/* bos and eos: the texts that the template sees as bos_token and eos_token; {NULL, 0} for none. The
 * tokenizer may be destroyed before the template. */
int loci_text_template_create(loci_text_view source, const loci_text_tokenizer* tokenizer, loci_text_view bos,
                              loci_text_view eos, loci_text_template** out, loci_text_bytes* error);
void loci_text_template_destroy(loci_text_template* chat_template);

/* context: one JSON object. Bounded in instructions, in bytes built and in output. */
int loci_text_template_render(const loci_text_template* chat_template, loci_text_view context,
                              loci_text_bytes* out, loci_text_bytes* error);
typedef struct {
  size_t text_size; /* bytes of the text, which follow those of the segments before */
  int64_t control;  /* the control token behind it; -1: none (the last segment) */
} loci_text_segment;
typedef struct {
  loci_text_bytes text; /* of all segments */
  loci_text_segment* data;
  size_t size; /* at least 1 */
} loci_text_segments;
/* As render, cut at the control tokens that the template itself wrote. */
int loci_text_template_segments(const loci_text_template* chat_template, loci_text_view context,
                                loci_text_segments* out, loci_text_bytes* error);
/* As render, tokenised: the pieces of all segments with their control tokens, which the template alone
 * writes. */
int loci_text_template_encode(const loci_text_template* chat_template, loci_text_view context,
                              loci_text_ids* out, loci_text_bytes* error);

/* --- grammars --- */

typedef struct loci_text_grammar_env loci_text_grammar_env; /* what must be known of a vocabulary */
typedef struct loci_text_grammar loci_text_grammar;         /* compiled */
typedef struct loci_text_matcher loci_text_matcher;         /* a grammar and a text so far */

enum {
  LOCI_TEXT_TOKEN_TEXT = 0,
  LOCI_TEXT_TOKEN_CONTROL = 1, /* only where a grammar names it; its bytes are its name */
  LOCI_TEXT_TOKEN_NEVER = 2,
};

enum {
  LOCI_TEXT_GRAMMAR_JSON_SCHEMA = 0,
  LOCI_TEXT_GRAMMAR_JSON_OBJECT = 1, /* any object; the text is not looked at */
  LOCI_TEXT_GRAMMAR_LARK = 2,        /* llguidance's Lark, or its JSON list of grammars */
  LOCI_TEXT_GRAMMAR_REGEX = 3,
  LOCI_TEXT_GRAMMAR_CHOICE = 4, /* a JSON array of strings */
};

enum {
  LOCI_TEXT_MATCHER_OPEN = 0,     /* more must follow */
  LOCI_TEXT_MATCHER_MAY_END = 1,  /* the text may end here, or go on */
  LOCI_TEXT_MATCHER_COMPLETE = 2, /* nothing may follow */
  LOCI_TEXT_MATCHER_STUCK = 3,    /* unfinished, and no token continues it */
};

/* tokens, roles: [count], by id. Takes some tenths of a second. */
int loci_text_grammar_env_create(const loci_text_view* tokens, const uint8_t* roles, size_t count,
                                 loci_text_grammar_env** out, loci_text_bytes* error);
void loci_text_grammar_env_destroy(loci_text_grammar_env* env);

/* frame: empty, or Lark in which the rule `content`, which it does not have, is what the text says. Bounded
 * in the size of the texts, the grammar, its lexer and the work of building them. The environment may be
 * destroyed before the grammar, the grammar before its matchers. */
int loci_text_grammar_compile(const loci_text_grammar_env* env, int32_t kind, loci_text_view text,
                              loci_text_view frame, loci_text_grammar** out, loci_text_bytes* error);
void loci_text_grammar_destroy(loci_text_grammar* grammar);

int loci_text_matcher_create(const loci_text_grammar* grammar, loci_text_matcher** out,
                             loci_text_bytes* error);
void loci_text_matcher_destroy(loci_text_matcher* matcher);
/* Which tokens may come next: bit id % 32 of words[id / 32], for (count + 31) / 32 words. No bit is set in
 * the states COMPLETE and STUCK. After an error (a limit was passed) the matcher only fails. */
int loci_text_matcher_mask(loci_text_matcher* matcher, uint32_t* words, size_t word_count, int32_t* state,
                           loci_text_bytes* error);
/* The token that comes next; an error where the mask does not have it. */
int loci_text_matcher_accept(loci_text_matcher* matcher, uint32_t token, int32_t* state,
                             loci_text_bytes* error);

void loci_text_bytes_free(loci_text_bytes bytes);
void loci_text_ids_free(loci_text_ids ids);
void loci_text_segments_free(loci_text_segments segments);

#ifdef __cplusplus
}
#endif
