// SPDX-License-Identifier: Apache-2.0
//! What one rendering may build. minijinja's fuel counts instructions, but one instruction can double a
//! string or nest a list; these bounds cover bytes, elements and depth. They belong to the thread that
//! renders, from `start` to the end of the rendering.

use std::cell::Cell;

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind};

pub const OUTPUT_BYTES_MAX: usize = 64 << 20;
const BUILT_BYTES: usize = 256 << 20;
const BUILT_BYTES_PER_CONTEXT_BYTE: usize = 256;
const ELEMENT_BYTES: usize = 32;
const WALK_BYTES: usize = 8;
const SCANNED_PER_BYTE: usize = 8;
pub const ELEMENTS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 200;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

pub fn start(context_bytes: usize) {
    LEFT.set(BUILT_BYTES.saturating_add(context_bytes.saturating_mul(BUILT_BYTES_PER_CONTEXT_BYTE)));
}

pub fn error(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

pub fn charge(bytes: usize) -> Result<(), Error> {
    let left = LEFT.get();
    if bytes > left {
        return Err(error("the template builds too much text or too many elements"));
    }
    LEFT.set(left - bytes);
    Ok(())
}

pub fn charge_elements(count: usize) -> Result<(), Error> {
    charge(count.saturating_mul(ELEMENT_BYTES))
}

/// Charges for reading `value` once: its bytes, or its elements. `each` for a string whose characters
/// become elements.
pub fn charge_value(value: &Value, each: bool) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return if each { charge_elements(text.len()) } else { charge(text.len()) };
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            charge_elements(value.len().unwrap_or(0))
        }
        _ => Ok(()),
    }
}

/// Charges for looking through `value` once, which costs less than copying it.
pub fn charge_scan(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => charge(text.len() / SCANNED_PER_BYTE),
        None => charge(value.len().unwrap_or(0)),
    }
}

/// Refuses values that are nested so deeply, or shared so often, that walking them would not end well.
/// Lazy sequences become lists, so that they do not pile up on one another.
pub fn settle(value: Value) -> Result<Value, Error> {
    let value = if value.kind() == ValueKind::Iterable {
        let mut items = Vec::new();
        for item in value.try_iter()? {
            charge_elements(1)?;
            items.push(item);
            if items.len() > ELEMENTS_MAX {
                return Err(error("a sequence has too many elements"));
            }
        }
        Value::from(items)
    } else {
        value
    };
    let walk = Walk::over(&value)?;
    charge(walk.elements * WALK_BYTES)?;
    charge_scan(&value)?;
    Ok(value)
}

/// As `settle`, for what becomes a member of a namespace. A namespace is the only value that can be changed,
/// so it could be made to hold itself, and would never be freed; what holds anything but lists, tuples and
/// maps is replaced by a copy that does not.
pub fn settle_member(value: Value) -> Result<Value, Error> {
    let value = settle(value)?;
    if Walk::over(&value)?.is_plain {
        return Ok(value);
    }
    plain_copy(&value, 0)
}

struct Walk {
    elements: usize,
    is_plain: bool,
}

impl Walk {
    fn over(value: &Value) -> Result<Walk, Error> {
        let mut walk = Walk { elements: 0, is_plain: true };
        walk.visit(value, 0)?;
        Ok(walk)
    }

    fn visit(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if let Some(object) = value.as_object() {
            let name = object.type_name();
            self.is_plain &= value.is_tuple() || name.contains("::Vec<") || name.contains("::IndexMap<");
        }
        let is_map = match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => false,
            ValueKind::Map => true,
            _ => return Ok(()),
        };
        if depth > DEPTH_MAX {
            return Err(error("a value is nested too deeply"));
        }
        for item in value.try_iter()? {
            self.elements += 1;
            if self.elements > ELEMENTS_MAX {
                return Err(error("a value has too many elements"));
            }
            if is_map {
                self.visit(&value.get_item(&item)?, depth + 1)?;
            } else {
                self.visit(&item, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn plain_copy(value: &Value, depth: usize) -> Result<Value, Error> {
    if depth > DEPTH_MAX {
        return Err(error("a value is nested too deeply"));
    }
    charge_elements(1)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                items.push(plain_copy(&item, depth + 1)?);
            }
            Ok(if value.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
        }
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                let item = plain_copy(&value.get_item(&key)?, depth + 1)?;
                pairs.push((plain_copy(&key, depth + 1)?, item));
            }
            Ok(Value::from_pairs(pairs))
        }
        _ => Ok(value.clone()),
    }
}
