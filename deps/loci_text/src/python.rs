// SPDX-License-Identifier: Apache-2.0
//! Values as Python writes them: str(), repr() and json.dumps(), because chat templates are written for
//! Jinja in Python.

use minijinja::value::{Value, ValueKind};
use minijinja::Error;

use crate::budget;

const DEPTH_MAX: usize = 200;

/// Text under construction, bounded by what one rendering may put out.
#[derive(Default)]
pub struct Text(pub String);

impl Text {
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        budget::charge(text.len())?;
        if self.0.len() + text.len() > budget::OUTPUT_BYTES_MAX {
            return Err(budget::error("a text is larger than 64 MiB"));
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn number(value: &Value) -> String {
    if !value.is_integer() {
        if let Ok(float) = f64::try_from(value.clone()) {
            return float_repr(float);
        }
    }
    value.to_string()
}

/// The shortest digits that read back as `value`, laid out as Python does.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// str(value); undefined is the empty text.
pub fn push_str(value: &Value, out: &mut Text) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        _ => match value.as_str() {
            Some(text) => out.push(text),
            None => push_repr(value, out, 0),
        },
    }
}

fn push_repr(value: &Value, out: &mut Text, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(budget::error("a value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::Undefined => out.push("Undefined"),
        ValueKind::None => out.push("None"),
        ValueKind::Bool => out.push(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push(&number(value)),
        ValueKind::String => push_quoted(value.as_str().unwrap_or(""), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
            out.push(open)?;
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push(", ")?;
                }
                push_repr(&item, out, depth + 1)?;
                count += 1;
            }
            if value.is_tuple() && count == 1 {
                out.push(",")?;
            }
            out.push(close)
        }
        ValueKind::Map => {
            out.push("{")?;
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push(", ")?;
                }
                push_repr(&key, out, depth + 1)?;
                out.push(": ")?;
                push_repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push("}")
        }
        _ => out.push(&value.to_string()),
    }
}

fn push_quoted(text: &str, out: &mut Text) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for c in text.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c == quote => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c as u32 == 0xad => {
                quoted.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => quoted.push(c),
        }
    }
    quoted.push(quote);
    out.push(&quoted)
}

/// json.dumps with the keyword arguments that Hugging Face's tojson filter has.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl JsonStyle {
    pub fn push(&self, value: &Value, out: &mut Text, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(budget::error("tojson: a value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push("null"),
            ValueKind::Bool => out.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push(match number(value).as_str() {
                "nan" => "NaN",
                "inf" => "Infinity",
                "-inf" => "-Infinity",
                digits => digits,
            }),
            ValueKind::String => out.push(&self.quoted(value.as_str().unwrap_or(""))),
            ValueKind::Seq | ValueKind::Iterable => {
                self.push_items(value, ("[", "]"), out, depth, |item, out| self.push(item, out, depth + 1))
            }
            ValueKind::Map => self.push_items(value, ("{", "}"), out, depth, |key, out| {
                match key.as_str() {
                    Some(text) => out.push(&self.quoted(text))?,
                    None => {
                        let mut text = Text::default();
                        self.push(key, &mut text, depth + 1)?;
                        out.push(&format!("\"{}\"", text.0))?;
                    }
                }
                out.push(&self.key_separator)?;
                self.push(&value.get_item(key)?, out, depth + 1)
            }),
            ValueKind::Undefined => Err(budget::error("tojson: an undefined value is not JSON serializable")),
            kind => Err(Error::new(
                minijinja::ErrorKind::InvalidOperation,
                format!("tojson: a value of type {kind} is not JSON serializable"),
            )),
        }
    }

    fn push_items(
        &self,
        value: &Value,
        (open, close): (&str, &str),
        out: &mut Text,
        depth: usize,
        push_item: impl Fn(&Value, &mut Text) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut items: Vec<Value> = Vec::new();
        for item in value.try_iter()? {
            budget::charge_elements(1)?;
            items.push(item);
        }
        if self.sort_keys && value.kind() == ValueKind::Map {
            items.sort();
        }
        out.push(open)?;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(&self.item_separator)?;
            }
            self.push_line(out, depth + 1)?;
            push_item(item, out)?;
        }
        if !items.is_empty() {
            self.push_line(out, depth)?;
        }
        out.push(close)
    }

    fn push_line(&self, out: &mut Text, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            out.push("\n")?;
            for _ in 0..depth {
                out.push(indent)?;
            }
        }
        Ok(())
    }

    fn quoted(&self, text: &str) -> String {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for c in text.chars() {
            match c {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                '\u{8}' => quoted.push_str("\\b"),
                '\u{c}' => quoted.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && !c.is_ascii()) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        quoted.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        quoted
    }
}
