// SPDX-License-Identifier: Apache-2.0
//! What chat templates find in Hugging Face's environment, and the bounded forms of what minijinja has.

use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};

use super::to_text;
use crate::budget::{self, charge, charge_scan, charge_value, error, settle, settle_member, OUTPUT_BYTES_MAX};
use crate::guard;
use crate::python::{JsonStyle, Text};

/// Begins the detail of an error that the template raised itself.
pub const RAISED: &str = "\u{1}raised:";
const WIDTH_MAX: usize = 4096;
/// Lists are often built by adding to them, so their elements weigh less here.
const ADDED_ELEMENT_BYTES: usize = 8;
const TIME_BYTES_MAX: usize = 4096;

pub fn install(environment: &mut Environment<'static>) {
    environment.set_formatter(emit);
    environment.set_unknown_method_callback(method);
    environment.add_filter(guard::ADD, add);
    environment.add_filter(guard::CONCAT, concat);
    environment.add_filter(guard::MULTIPLY, multiply);
    environment.add_filter(guard::CHARGE, |value: Value| charge_value(&value, false).map(|()| value));
    environment.add_filter(guard::EACH, |value: Value| charge_value(&value, true).map(|()| value));
    environment.add_filter(guard::SCAN, |value: Value| charge_scan(&value).map(|()| value));
    environment.add_filter(guard::SETTLE, settle);
    environment.add_filter(guard::SETTLE_MEMBER, settle_member);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: Value| to_text(&value));
    environment.add_filter("replace", replace);
    environment.add_filter("trim", trim);
    environment.add_filter("upper", |value: Value| Ok::<_, Error>(to_text(&value)?.to_uppercase()));
    environment.add_filter("lower", |value: Value| Ok::<_, Error>(to_text(&value)?.to_lowercase()));
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("join", join);
    environment.add_filter("indent", indent);
    environment.add_filter("format", format_filter);
    environment.add_filter("batch", batch);
    install_tests(environment);
    for name in ["pprint", "slice", "chain", "zip", "urlencode"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{}", to_text(&message)?)))
    });
    environment.add_function("strftime_now", |format: String| strftime_now(&format));
    environment.add_function("namespace", |first: Option<Value>, named: Kwargs| {
        let initial = minijinja::functions::dict(first, named)?;
        let initial = minijinja::value::from_args::<(Option<minijinja::value::ValueOrKwargs>,)>(&[
            settle(initial)?,
        ])?;
        minijinja::functions::namespace(initial.0)
    });
    environment.add_function("dict", |first: Option<Value>, named: Kwargs| {
        settle(minijinja::functions::dict(first, named)?)
    });
}

/// Where Jinja's tests answer otherwise than minijinja's.
fn install_tests(environment: &mut Environment<'static>) {
    environment.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    environment.add_test("number", |value: Value| is_numeric(&value));
    // `select` and its kin run a test for each element: what the test itself reads is charged.
    environment.add_test("in", |state: &mut State, value: Value, container: Value| {
        charge(container.len().unwrap_or(0).saturating_mul(4))?;
        minijinja::tests::is_in(state, &value, &container)
    });
    for name in ["eq", "equalto", "=="] {
        environment.add_test(name, |left: Value, right: Value| equal(left, right));
    }
    for name in ["ne", "!="] {
        environment.add_test(name, |left: Value, right: Value| equal(left, right).map(|same| !same));
    }
}

fn equal(left: Value, right: Value) -> Result<bool, Error> {
    if left.as_object().is_some() && right.as_object().is_some() {
        return Ok(settle(left)? == settle(right)?);
    }
    charge_scan(&left)?;
    Ok(left == right)
}

/// {{ value }}
fn emit(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if !matches!(state.auto_escape(), AutoEscape::None) && !value.is_safe() {
        out.write_str(escape(value.clone())?.as_str().unwrap_or(""))?;
        return Ok(());
    }
    match value.as_str() {
        Some(text) => {
            charge(text.len())?;
            out.write_str(text)?;
        }
        None => out.write_str(&to_text(value)?)?,
    }
    Ok(())
}

/// As Python's markupsafe writes it.
fn escape(value: Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value);
    }
    let text = to_text(&value)?;
    bounded_length(text.len(), 5, 1)?;
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            c => escaped.push(c),
        }
    }
    Ok(Value::from_safe_string(escaped))
}

fn trim(value: Value, characters: Option<String>) -> Result<String, Error> {
    let text = to_text(&value)?;
    Ok(match characters {
        None => text.trim().to_string(),
        Some(characters) => text.trim_matches(|c| characters.contains(c)).to_string(),
    })
}

/// Jinja's undefined has length 0.
fn length(value: Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("cannot calculate length of value of type {}", value.kind()),
        )
    })
}

/// `~`
fn concat(left: Value, right: Value) -> Result<Value, Error> {
    let mut text = Text::default();
    crate::python::push_str(&left, &mut text)?;
    crate::python::push_str(&right, &mut text)?;
    Ok(Value::from(text.0))
}

/// `+` of texts, sequences and numbers. What is added to a safe text is escaped, as by markupsafe.
fn add(left: Value, right: Value) -> Result<Value, Error> {
    if left.kind() == ValueKind::String && right.kind() == ValueKind::String {
        if !left.is_safe() && !right.is_safe() {
            return concat(left, right);
        }
        let joined = concat(escape(left)?, escape(right)?)?;
        return Ok(Value::from_safe_string(joined.to_string()));
    }
    let is_sequence = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_sequence(&left) && is_sequence(&right) && left.is_tuple() == right.is_tuple() {
        let mut items = Vec::new();
        for item in left.try_iter()?.chain(right.try_iter()?) {
            charge(ADDED_ELEMENT_BYTES)?;
            items.push(item);
        }
        if items.len() > budget::ELEMENTS_MAX {
            return Err(error("a sequence has too many elements"));
        }
        return Ok(if left.is_tuple() {
            Value::from(minijinja::value::Tuple::from(items))
        } else {
            Value::from(items)
        });
    }
    numeric(&left, &right, "+", i128::checked_add, |a, b| a + b)
}

fn bounded_length(length: usize, times: usize, each: usize) -> Result<(), Error> {
    let total = length.checked_mul(times).and_then(|n| n.checked_mul(each)).unwrap_or(usize::MAX);
    if total > OUTPUT_BYTES_MAX {
        return Err(error("a repeated value is larger than 64 MiB"));
    }
    charge(total)
}

fn multiply(left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(sequence), Some(times)) = repeated(&left, &right) {
        if let Some(text) = sequence.as_str() {
            bounded_length(text.len(), times, 1)?;
            return Ok(Value::from(text.repeat(times)));
        }
        bounded_length(sequence.len().unwrap_or(0), times, std::mem::size_of::<Value>())?;
        let items: Vec<Value> = sequence.try_iter()?.collect();
        let total = items.len() * times;
        return Ok(Value::from(items.into_iter().cycle().take(total).collect::<Vec<Value>>()));
    }
    numeric(&left, &right, "*", i128::checked_mul, |a, b| a * b)
}

fn numeric(
    left: &Value,
    right: &Value,
    name: &str,
    integers: fn(i128, i128) -> Option<i128>,
    floats: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if !is_numeric(left) || !is_numeric(right) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tried to use {name} operator on unsupported types {} and {}", left.kind(), right.kind()),
        ));
    }
    let is_whole = |value: &Value| value.is_integer() || value.kind() == ValueKind::Bool;
    if !is_whole(left) || !is_whole(right) {
        return Ok(Value::from(floats(as_float(left)?, as_float(right)?)));
    }
    let result = integers(i128::try_from(left.clone())?, i128::try_from(right.clone())?)
        .ok_or_else(|| error("an integer is too large"))?;
    Ok(i64::try_from(result).map(Value::from).unwrap_or_else(|_| Value::from(result)))
}

fn is_numeric(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

fn as_float(value: &Value) -> Result<f64, Error> {
    if value.kind() == ValueKind::Bool {
        return Ok(if value.is_true() { 1.0 } else { 0.0 });
    }
    f64::try_from(value.clone())
}

/// A text or sequence and how often it is repeated; Python takes negative counts as none.
fn repeated<'a>(left: &'a Value, right: &'a Value) -> (Option<&'a Value>, Option<usize>) {
    let is_sequence =
        |value: &Value| matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable);
    let (sequence, count) = if is_sequence(left) { (left, right) } else { (right, left) };
    if !is_sequence(sequence) || !is_numeric(count) || !(count.is_integer() || !count.is_number()) {
        return (None, None);
    }
    let times = i64::try_from(count.clone()).unwrap_or(if count.is_true() { 1 } else { 0 });
    (Some(sequence), Some(times.max(0) as usize))
}

fn tojson(value: Value, indent: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => named.get::<Option<Value>>("indent")?,
    };
    let indent = match indent {
        None => None,
        Some(indent) if indent.is_none() || indent.is_undefined() => None,
        Some(indent) => match indent.as_str() {
            Some(text) => Some(text.to_string()),
            None => {
                let width = usize::try_from(indent).unwrap_or(0);
                if width > WIDTH_MAX {
                    return Err(error("tojson: indent is too large"));
                }
                Some(" ".repeat(width))
            }
        },
    };
    let separators: Option<Vec<String>> = named.get("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(error("tojson: separators needs two texts")),
        None => ((if indent.is_some() { "," } else { ", " }).to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        ensure_ascii: named.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: named.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    named.assert_all_used()?;
    let mut text = Text::default();
    style.push(&value, &mut text, 0)?;
    Ok(Value::from(text.0))
}

/// Python's str.replace, with the result's size known before it is made.
fn replace_bounded(text: &str, from: &str, to: &str, count: usize) -> Result<Value, Error> {
    let hits = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
    let hits = hits.min(count);
    charge(text.len())?;
    bounded_length(to.len(), hits, 1)?;
    Ok(Value::from(text.replacen(from, to, hits)))
}

fn count_of(value: Option<i64>) -> usize {
    value.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
}

fn replace(text: Value, from: String, to: String, count: Option<i64>) -> Result<Value, Error> {
    replace_bounded(&to_text(&text)?, &from, &to, count_of(count))
}

fn join_bounded(items: &Value, separator: &str) -> Result<Value, Error> {
    let mut text = Text::default();
    for (index, item) in items.try_iter()?.enumerate() {
        if index > 0 {
            text.push(separator)?;
        }
        crate::python::push_str(&item, &mut text)?;
    }
    Ok(Value::from(text.0))
}

fn join(items: Value, separator: Option<String>, attribute: Option<String>, named: Kwargs) -> Result<Value, Error> {
    let separator = match separator {
        Some(separator) => separator,
        None => named.get::<Option<String>>("d")?.unwrap_or_default(),
    };
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => named.get::<Option<String>>("attribute")?,
    };
    named.assert_all_used()?;
    let Some(attribute) = attribute else { return join_bounded(&items, &separator) };
    let mut picked = Vec::new();
    for item in items.try_iter()? {
        budget::charge_elements(1)?;
        picked.push(item.get_attr(&attribute)?);
    }
    join_bounded(&Value::from(picked), &separator)
}

/// Jinja's indent: `width` is a number of spaces or the text itself.
fn indent(text: String, width: Option<Value>, first: Option<bool>, blank: Option<bool>, named: Kwargs) -> Result<Value, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => named.get::<Option<Value>>("width")?,
    };
    let first = match first {
        Some(first) => first,
        None => named.get::<Option<bool>>("first")?.unwrap_or(false),
    };
    let blank = match blank {
        Some(blank) => blank,
        None => named.get::<Option<bool>>("blank")?.unwrap_or(false),
    };
    named.assert_all_used()?;
    let prefix = match &width {
        None => "    ".to_string(),
        Some(width) => match width.as_str() {
            Some(prefix) => prefix.to_string(),
            None => {
                let count = usize::try_from(width.clone())?;
                if count > WIDTH_MAX {
                    return Err(error("indent: width is too large"));
                }
                " ".repeat(count)
            }
        },
    };
    let lines = text.split('\n').count();
    bounded_length(prefix.len(), lines, 1)?;
    let mut result = String::with_capacity(text.len() + prefix.len() * lines);
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            result.push('\n');
        }
        let indented = if index == 0 { first } else { blank || !line.is_empty() };
        if indented {
            result.push_str(&prefix);
        }
        result.push_str(line);
    }
    Ok(Value::from(result))
}

/// A width or precision of four digits is no chat template's, and may cost a gigabyte.
fn check_widths(format: &str) -> Result<(), Error> {
    let mut digits = 0;
    for byte in format.bytes() {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > 3 || byte == b'*' {
            return Err(error("format: a width has more than three digits"));
        }
    }
    Ok(())
}

fn format_filter(format: String, args: Rest<Value>) -> Result<Value, Error> {
    check_widths(&format)?;
    for argument in args.iter() {
        bounded_length(argument.as_str().map_or(1024, str::len), 1 + format.matches('%').count(), 1)?;
    }
    minijinja::formatting::format(FormatStyle::Printf, &format, &args).map(Value::from)
}

fn batch(items: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    if count == 0 {
        return Err(error("batch: the count can't be 0"));
    }
    let mut batches: Vec<Value> = Vec::new();
    let mut current: Vec<Value> = Vec::new();
    for item in items.try_iter()? {
        current.push(item);
        if current.len() == count {
            batches.push(Value::from(std::mem::take(&mut current)));
        }
    }
    if !current.is_empty() {
        if let Some(fill) = fill {
            bounded_length(count - current.len(), 1, std::mem::size_of::<Value>())?;
            current.resize(count, fill);
        }
        batches.push(Value::from(current));
    }
    Ok(Value::from(batches))
}

/// Python's methods: those that can build much are bounded here, the rest are minijinja-contrib's.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match name {
            "replace" => {
                let (from, to, count): (&str, &str, Option<i64>) = minijinja::value::from_args(args)?;
                return replace_bounded(text, from, to, count_of(count));
            }
            "join" => {
                let (items,): (&Value,) = minijinja::value::from_args(args)?;
                return join_bounded(items, text);
            }
            "format" => {
                check_widths(text)?;
                for argument in args {
                    let size = argument.as_str().map_or(1024, str::len);
                    bounded_length(size, 1 + text.matches('{').count(), 1)?;
                }
            }
            "removeprefix" => {
                let (prefix,): (&str,) = minijinja::value::from_args(args)?;
                return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
            }
            "removesuffix" => {
                let (suffix,): (&str,) = minijinja::value::from_args(args)?;
                return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
            }
            "rsplit" => return rsplit(text, args),
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, count): (&str, Option<i64>) = minijinja::value::from_args(args)?;
    if separator.is_empty() {
        return Err(error("rsplit: empty separator"));
    }
    let pieces = count_of(count).saturating_add(1);
    budget::charge_elements(text.matches(separator).count() + 1)?;
    let mut parts: Vec<Value> = text.rsplitn(pieces, separator).map(Value::from).collect();
    parts.reverse();
    Ok(Value::from(parts))
}

/// The local time, as datetime.now().strftime(format) gives it.
fn strftime_now(format: &str) -> Result<String, Error> {
    check_widths(format)?;
    if format.is_empty() {
        return Ok(String::new());
    }
    // A trailing character makes an empty result differ from one that does not fit.
    let format = std::ffi::CString::new(format!("{format}."))
        .map_err(|_| error("strftime_now: the format holds a NUL character"))?;
    let mut buffer = vec![0u8; TIME_BYTES_MAX];
    // SAFETY: the pointers are to live objects of the right sizes; both functions only write to theirs.
    let written = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut parts);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &parts)
    };
    if written == 0 {
        return Err(error("strftime_now: the result is too long"));
    }
    buffer.truncate(written - 1);
    String::from_utf8(buffer).map_err(|_| error("strftime_now: the result is not UTF-8"))
}
