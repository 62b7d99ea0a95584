// SPDX-License-Identifier: Apache-2.0
//! The C ABI of loci_text.h: every pointer is checked, every input is length-delimited, errors come
//! back as text, and no panic leaves an entry.

mod budget;
mod charsmap;
mod cutter;
mod grammar;
mod grammar_abi;
mod guard;
mod marks;
mod normalizer_bounds;
mod pre_tokenizer;
mod python;
mod schema_bounds;
mod schema_meter;
mod schema_shape;
mod template;
mod tokenizer;
mod tokenizer_json;
mod unigram;
mod vocabulary;

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use template::Template;
use tokenizer::{unigram_normalizer, Place, Scheme, Tokenizer};
use tokenizer_json::TokenizerJson;
use vocabulary::{TokenKind, Vocabulary};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
}

#[repr(C)]
pub struct SegmentPart {
    text_size: usize,
    control: i64,
}

#[repr(C)]
pub struct Segments {
    text: Bytes,
    data: *mut SegmentPart,
    size: usize,
}

#[repr(C)]
pub struct VocabularyView {
    kind: i32,
    add_space_prefix: i32,
    remove_extra_spaces: i32,
    special_takes_blanks: i32,
    pre_tokenizer: View,
    chars_map: View,
    tokens: *const View,
    token_types: *const i32,
    scores: *const f32,
    token_count: usize,
    merges: *const View,
    merge_count: usize,
    unknown_token: i64,
}

#[repr(C)]
pub struct Description {
    byte_level: i32,
    strips_space: i32,
    unknown_token: i64,
    leading_token: i64,
    token_count: usize,
}

pub struct TokenizerHandle(Arc<Tokenizer>);
pub struct TemplateHandle(Template);

const OK: i32 = 0;
const FAILED: i32 = 1;

/// SAFETY: `data` is null or points to `size` readable bytes that outlive the result.
unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// SAFETY: as `slice`.
unsafe fn text<'a>(view: View, what: &str) -> Result<&'a str, String> {
    std::str::from_utf8(slice(view.data, view.size))
        .map_err(|error| format!("{what}: not UTF-8 at byte {}", error.valid_up_to()))
}

fn give_bytes(bytes: Vec<u8>) -> Bytes {
    let boxed = bytes.into_boxed_slice();
    let size = boxed.len();
    Bytes { data: Box::into_raw(boxed).cast(), size }
}

fn give_ids(ids: Vec<u32>) -> Ids {
    let boxed = ids.into_boxed_slice();
    let size = boxed.len();
    Ids { data: Box::into_raw(boxed).cast(), size }
}

fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("internal error: {}", text.unwrap_or_else(|| "a panic without a message".to_string()))
}

/// Runs `body`; its error or panic becomes text in `error`.
fn guarded(error: *mut Bytes, body: impl FnOnce() -> Result<(), String>) -> i32 {
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OK,
        Ok(Err(message)) => message,
        Err(panic) => panic_message(panic),
    };
    if !error.is_null() {
        // SAFETY: the caller gives a writable place for the error.
        unsafe { *error = give_bytes(message.into_bytes()) };
    }
    FAILED
}

unsafe fn views<'a>(data: *const View, count: usize, what: &str) -> Result<Vec<&'a str>, String> {
    slice(data, count)
        .iter()
        .enumerate()
        .map(|(index, view)| text(*view, "").map_err(|error| format!("{what}[{index}]{error}")))
        .collect()
}

unsafe fn make_tokenizer(view: &VocabularyView) -> Result<Tokenizer, String> {
    let tokens = views(view.tokens, view.token_count, "tokenizer.ggml.tokens")?;
    let merges = views(view.merges, view.merge_count, "tokenizer.ggml.merges")?;
    let mut kinds = Vec::with_capacity(tokens.len());
    for (index, number) in slice(view.token_types, view.token_count).iter().enumerate() {
        kinds.push(TokenKind::from_number(*number).ok_or_else(|| {
            format!("tokenizer.ggml.token_type[{index}]: expected 1 to 6, found {number}")
        })?);
    }
    if kinds.len() != tokens.len() {
        return Err("tokenizer.ggml.token_type: expected one for each token".to_string());
    }
    let vocabulary = Vocabulary { tokens: tokens.iter().map(|t| t.to_string()).collect(), kinds };
    let scores = slice(view.scores, view.token_count);
    if matches!(view.kind, 1 | 2) && scores.len() != tokens.len() {
        return Err("tokenizer.ggml.scores: expected one for each token".to_string());
    }
    let add_space_prefix = view.add_space_prefix != 0;
    let unknown = u32::try_from(view.unknown_token).ok();
    let scheme = match view.kind {
        0 => Scheme::ByteLevel { pre: text(view.pre_tokenizer, "tokenizer.ggml.pre")?, merges: &merges },
        1 => Scheme::SentencePiece { scores, add_space_prefix, unknown },
        2 => {
            let map = slice(view.chars_map.data, view.chars_map.size);
            let normalizer = unigram_normalizer(map, add_space_prefix, view.remove_extra_spaces != 0)?;
            Scheme::Unigram { scores, normalizer, unknown }
        }
        3 => Scheme::SentencePieceMerges { merges: &merges, add_space_prefix },
        other => return Err(format!("vocabulary kind: expected 0 to 3, found {other}")),
    };
    Tokenizer::new(vocabulary, scheme, view.special_takes_blanks != 0)
}

/// # Safety
/// See loci_text.h; so for every entry below.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_create(
    vocabulary: *const VocabularyView,
    out: *mut *mut TokenizerHandle,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let tokenizer = make_tokenizer(&*vocabulary)?;
        *out = Box::into_raw(Box::new(TokenizerHandle(Arc::new(tokenizer))));
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_from_json(
    json: View,
    control_texts: *const View,
    control_text_count: usize,
    control_ids: *const u32,
    control_id_count: usize,
    token_limit: u32,
    out: *mut *mut TokenizerHandle,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let control = views(control_texts, control_text_count, "control token")?;
        let ids = slice(control_ids, control_id_count);
        let parsed = TokenizerJson::parse(text(json, "tokenizer.json")?, &control, ids, token_limit)?;
        let tokenizer = Tokenizer::from_json(parsed)?;
        *out = Box::into_raw(Box::new(TokenizerHandle(Arc::new(tokenizer))));
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_describe(
    tokenizer: *const TokenizerHandle,
    out: *mut Description,
) {
    let tokenizer: &Tokenizer = &(*tokenizer).0;
    let id = |id: Option<u32>| id.map_or(-1, i64::from);
    *out = Description {
        byte_level: i32::from(tokenizer.spelling.byte_level),
        strips_space: i32::from(tokenizer.spelling.strips_space),
        unknown_token: id(tokenizer.unknown),
        leading_token: id(tokenizer.leading),
        token_count: tokenizer.vocabulary.tokens.len(),
    };
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_token(
    tokenizer: *const TokenizerHandle,
    id: u32,
    kind: *mut i32,
) -> View {
    let tokenizer: &Tokenizer = &(*tokenizer).0;
    let vocabulary = &tokenizer.vocabulary;
    let index = id as usize;
    let (Some(token), Some(found)) = (vocabulary.tokens.get(index), vocabulary.kinds.get(index)) else {
        return View { data: std::ptr::null(), size: 0 };
    };
    *kind = found.number();
    View { data: token.as_ptr(), size: token.len() }
}

/// # Safety
/// `tokenizer` is null or was created above and is not used again.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_destroy(tokenizer: *mut TokenizerHandle) {
    if !tokenizer.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(tokenizer))));
    }
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_encode(
    tokenizer: *const TokenizerHandle,
    input: View,
    with_control: i32,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let input = text(input, "expected UTF-8")?;
        let mut ids = Vec::new();
        if with_control != 0 {
            (*tokenizer).0.encode_with_control(input, &mut ids)?;
        } else {
            (*tokenizer).0.encode_plain(input, Place::First, &mut ids)?;
        }
        *out = give_ids(ids);
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_tokenizer_encode_piece(
    tokenizer: *const TokenizerHandle,
    input: View,
    place: i32,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let place = match place {
            0 => Place::First,
            1 => Place::Inner,
            2 => Place::Continued,
            other => return Err(format!("place: expected 0 to 2, found {other}")),
        };
        let mut ids = Vec::new();
        (*tokenizer).0.encode_plain(text(input, "expected UTF-8")?, place, &mut ids)?;
        *out = give_ids(ids);
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_template_create(
    source: View,
    tokenizer: *const TokenizerHandle,
    bos: View,
    eos: View,
    out: *mut *mut TemplateHandle,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let optional = |view: View, what: &str| -> Result<Option<String>, String> {
            if view.data.is_null() {
                return Ok(None);
            }
            Ok(Some(text(view, what)?.to_string()))
        };
        let source = text(source, "chat template")?;
        let template = Template::new(
            source,
            (*tokenizer).0.clone(),
            optional(bos, "bos_token")?,
            optional(eos, "eos_token")?,
        )?;
        *out = Box::into_raw(Box::new(TemplateHandle(template)));
        Ok(())
    })
}

/// # Safety
/// `template` is null or was created above and is not used again.
#[no_mangle]
pub unsafe extern "C" fn loci_text_template_destroy(template: *mut TemplateHandle) {
    if !template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(template))));
    }
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_template_render(
    template: *const TemplateHandle,
    context: View,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let rendered = (*template).0.render(text(context, "context")?)?;
        *out = give_bytes(rendered.into_bytes());
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_template_encode(
    template: *const TemplateHandle,
    context: View,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        *out = give_ids((*template).0.encode(text(context, "context")?)?);
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_template_segments(
    template: *const TemplateHandle,
    context: View,
    out: *mut Segments,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let segments = (*template).0.segments(text(context, "context")?)?;
        let mut bytes = Vec::with_capacity(segments.iter().map(|segment| segment.text.len()).sum());
        let mut parts = Vec::with_capacity(segments.len());
        for segment in &segments {
            bytes.extend_from_slice(segment.text.as_bytes());
            parts.push(SegmentPart { text_size: segment.text.len(), control: segment.control.map_or(-1, i64::from) });
        }
        let boxed = parts.into_boxed_slice();
        let size = boxed.len();
        *out = Segments { text: give_bytes(bytes), data: Box::into_raw(boxed).cast(), size };
        Ok(())
    })
}

/// # Safety
/// `segments` was given by the entry above and is not used again.
#[no_mangle]
pub unsafe extern "C" fn loci_text_segments_free(segments: Segments) {
    loci_text_bytes_free(segments.text);
    if !segments.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(segments.data, segments.size)));
    }
}

/// # Safety
/// `bytes` was given by an entry above and is not used again.
#[no_mangle]
pub unsafe extern "C" fn loci_text_bytes_free(bytes: Bytes) {
    if !bytes.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.size)));
    }
}

/// # Safety
/// `ids` was given by an entry above and is not used again.
#[no_mangle]
pub unsafe extern "C" fn loci_text_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}
