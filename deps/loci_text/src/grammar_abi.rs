// SPDX-License-Identifier: Apache-2.0
//! The C ABI of grammars; see loci_text.h.

use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::grammar::{Environment, Grammar, Kind, Matcher, TokenRole};
use crate::{guarded, slice, text, Bytes, View};

fn role(number: u8) -> Result<TokenRole, String> {
    match number {
        0 => Ok(TokenRole::Text),
        1 => Ok(TokenRole::Control),
        2 => Ok(TokenRole::Never),
        other => Err(format!("token role: expected 0 to 2, found {other}")),
    }
}

fn kind(number: i32) -> Result<Kind, String> {
    match number {
        0 => Ok(Kind::JsonSchema),
        1 => Ok(Kind::JsonObject),
        2 => Ok(Kind::Lark),
        3 => Ok(Kind::Regex),
        4 => Ok(Kind::Choice),
        other => Err(format!("grammar kind: expected 0 to 4, found {other}")),
    }
}

/// SAFETY: `handle` is null or was created below and is not used again.
unsafe fn destroy<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(handle))));
    }
}

/// # Safety
/// See loci_text.h; so for every entry below.
#[no_mangle]
pub unsafe extern "C" fn loci_text_grammar_env_create(
    tokens: *const View,
    roles: *const u8,
    count: usize,
    out: *mut *mut Environment,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let words: Vec<&[u8]> = slice(tokens, count).iter().map(|view| slice(view.data, view.size)).collect();
        let roles = slice(roles, count).iter().map(|number| role(*number)).collect::<Result<Vec<_>, _>>()?;
        *out = Box::into_raw(Box::new(Environment::new(&words, &roles)?));
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_grammar_env_destroy(env: *mut Environment) {
    destroy(env);
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_grammar_compile(
    env: *const Environment,
    number: i32,
    source: View,
    frame: View,
    out: *mut *mut Grammar,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        let (source, frame) = (text(source, "expected UTF-8")?, text(frame, "expected UTF-8")?);
        let grammar = (*env).compile(kind(number)?, source, frame)?;
        *out = Box::into_raw(Box::new(grammar));
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_grammar_destroy(grammar: *mut Grammar) {
    destroy(grammar);
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_matcher_create(
    grammar: *const Grammar,
    out: *mut *mut Matcher,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        *out = Box::into_raw(Box::new((*grammar).matcher()?));
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_matcher_destroy(matcher: *mut Matcher) {
    destroy(matcher);
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    word_count: usize,
    state: *mut i32,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        *state = (*matcher).mask(std::slice::from_raw_parts_mut(words, word_count))? as i32;
        Ok(())
    })
}

/// # Safety
/// See loci_text.h.
#[no_mangle]
pub unsafe extern "C" fn loci_text_matcher_accept(
    matcher: *mut Matcher,
    token: u32,
    state: *mut i32,
    error: *mut Bytes,
) -> i32 {
    guarded(error, || {
        *state = (*matcher).accept(token)? as i32;
        Ok(())
    })
}
