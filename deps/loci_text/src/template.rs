// SPDX-License-Identifier: Apache-2.0
//! A model's chat template: parsed once, rendered for each conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::machinery::{self, CodeGenerator, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind};

use crate::budget;
use crate::guard;
use crate::marks::{Marker, Marks};
use crate::python;
use crate::tokenizer::{Place, Tokenizer};

mod functions;

const SOURCE_BYTES_MAX: usize = 1 << 20;
const INSTRUCTIONS_MAX: u64 = 10_000_000;
const RECURSION_MAX: usize = 400;
const NAME: &str = "chat_template";

pub struct Template {
    // Declared before `source`, which they point into: dropped first.
    instructions: Instructions<'static>,
    blocks: BTreeMap<&'static str, Instructions<'static>>,
    environment: Environment<'static>,
    _source: Box<str>,
    marker: Marker,
    tokenizer: Arc<Tokenizer>,
    bos: Option<String>,
    eos: Option<String>,
}

/// A rendering with the marks still in it.
struct Rendered {
    text: String,
    marks: Marks,
}

/// Text, and the control token behind it; the last one has none.
pub struct Segment {
    pub text: String,
    pub control: Option<u32>,
}

impl Template {
    pub fn new(
        source: &str,
        tokenizer: Arc<Tokenizer>,
        bos: Option<String>,
        eos: Option<String>,
    ) -> Result<Template, String> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!(
                "the template has {} bytes; at most {SOURCE_BYTES_MAX} are allowed",
                source.len()
            ));
        }
        let marker = Marker::new(tokenizer.control_texts(), source)?;
        let source: Box<str> = without_generation_tags(source).into_boxed_str();
        // SAFETY: the box is neither moved out of nor changed while Template lives, and what borrows from
        // it is private and dropped before it.
        let borrowed: &'static str = unsafe { &*(&*source as *const str) };
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| error.to_string())?;
        guard::check_chains(borrowed, syntax.clone())?;
        let tree = machinery::parse(borrowed, NAME, syntax).map_err(|error| describe(&error))?;
        let tree = guard::rewrite(&tree)?;
        let mut generator = CodeGenerator::new(NAME, borrowed);
        generator.compile_stmt(&tree);
        let (instructions, blocks) = generator.finish();
        let mut environment = Environment::new();
        environment.set_fuel(Some(INSTRUCTIONS_MAX));
        environment.set_recursion_limit(RECURSION_MAX);
        functions::install(&mut environment);
        Ok(Template { instructions, blocks, environment, _source: source, marker, tokenizer, bos, eos })
    }

    pub fn render(&self, context: &str) -> Result<String, String> {
        let rendered = self.render_marked(context)?;
        Ok(rendered.marks.restore(&rendered.text))
    }

    pub fn encode(&self, context: &str) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        for (index, segment) in self.segments(context)?.iter().enumerate() {
            let place = if index == 0 { Place::First } else { Place::Inner };
            self.tokenizer.encode_plain(&segment.text, place, &mut ids)?;
            ids.extend(segment.control);
        }
        Ok(ids)
    }

    /// The rendered text, cut at the control tokens that the template itself wrote. At least one.
    pub fn segments(&self, context: &str) -> Result<Vec<Segment>, String> {
        let rendered = self.render_marked(context)?;
        let found = self.tokenizer.split_at_control(&rendered.text);
        let segments = found.iter().map(|found| Segment {
            text: rendered.marks.restore(found.before),
            control: found.control,
        });
        Ok(segments.collect())
    }

    /// Partial marks may only be kept where the template says the same with and without them.
    fn render_marked(&self, context: &str) -> Result<Rendered, String> {
        let parsed: serde_json::Value =
            serde_json::from_str(context).map_err(|error| format!("context: {error}"))?;
        if !parsed.is_object() {
            return Err("context: expected a JSON object".to_string());
        }
        let mut strict = parsed.clone();
        let strict_marks = self.marker.mark(&mut strict, true)?;
        if !strict_marks.any_partial {
            let text = self.run(strict, context.len()).map_err(|error| strict_marks.restore(&error))?;
            return Ok(Rendered { text, marks: strict_marks });
        }
        let mut whole = parsed;
        let marks = self.marker.mark(&mut whole, false)?;
        let text = self.run(whole, context.len()).map_err(|error| marks.restore(&error))?;
        if let Ok(strict_text) = self.run(strict, context.len()) {
            if strict_marks.restore(&strict_text) == marks.restore(&text) {
                return Ok(Rendered { text: strict_text, marks: strict_marks });
            }
        }
        Ok(Rendered { text, marks })
    }

    fn run(&self, context: serde_json::Value, context_bytes: usize) -> Result<String, String> {
        budget::start(context_bytes);
        let serde_json::Value::Object(mut map) = context else {
            return Err("context: expected a JSON object".to_string());
        };
        for (name, value) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            match value {
                Some(text) => map.insert(name.to_string(), serde_json::Value::String(text.clone())),
                None => map.shift_remove(name),
            };
        }
        let root = from_json(serde_json::Value::Object(map));
        let mut text = String::new();
        let mut output = machinery::make_string_output(&mut text);
        let result = machinery::eval(
            &self.environment,
            &self.instructions,
            root,
            &self.blocks,
            &mut output,
            AutoEscape::None,
        );
        match result {
            Ok(_) => Ok(text),
            Err(error) => Err(describe(&error)),
        }
    }
}

/// "line 12: what the matter is"; a message of raise_exception stands alone.
fn describe(error: &minijinja::Error) -> String {
    let detail = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            format!("the template runs for more than {INSTRUCTIONS_MAX} instructions")
        }
        (_, Some(detail)) => match detail.strip_prefix(functions::RAISED) {
            Some(message) => return message.to_string(),
            None => detail.to_string(),
        },
        (kind, None) => kind.to_string(),
    };
    // The innermost cause says most: an error inside a macro carries the call's error around it.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(inner) = inner.downcast_ref::<minijinja::Error>() {
            return describe(inner);
        }
        cause = inner.source();
    }
    match error.line() {
        Some(line) => format!("line {line}: {detail}"),
        None => detail,
    }
}

/// Hugging Face's {% generation %} marks what an assistant wrote, for training; here its body is all that
/// matters. `if true` keeps the tag's whitespace control.
fn without_generation_tags(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        result.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inside = &tag[2..end];
        let name = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let replacement = match name {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match replacement {
            Some(replacement) => {
                result.push_str("{%");
                result.push_str(&inside.replacen(name, replacement, 1));
                result.push_str("%}");
                rest = &tag[end + 2..];
            }
            None => {
                result.push_str("{%");
                rest = &tag[2..];
            }
        }
    }
    result.push_str(rest);
    result
}

fn from_json(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text),
        serde_json::Value::Array(items) => Value::from_iter(items.into_iter().map(from_json)),
        serde_json::Value::Object(map) => {
            Value::from_pairs(map.into_iter().map(|(key, item)| (Value::from(key), from_json(item))))
        }
    }
}

/// Writes a value as Python's str() does.
fn to_text(value: &Value) -> Result<String, minijinja::Error> {
    let mut text = python::Text::default();
    python::push_str(value, &mut text)?;
    Ok(text.0)
}
