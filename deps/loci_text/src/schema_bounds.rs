// SPDX-License-Identifier: Apache-2.0
//! Refuses JSON schemas that take too much to build. Schemas that must hold together are intersected, and each
//! alternative of one side gets a copy of the other:
//!
//!   {"allOf": [{"anyOf": [A, B, C]}, D]}   is built as   {"anyOf": [A and D, B and D, C and D]}
//!
//! With references and nested alternatives a few kilobytes become gigabytes. llguidance bounds the number of
//! intersections, not what they copy. So this walk repeats its building (json/schema.rs there), with shapes that
//! are shared instead of copied, and adds up what would be built and copied. It also counts comparisons between
//! the patterns of patternProperties and between the options of oneOf. Where llguidance would end with an error
//! the walk goes on: what it then refuses would have been refused anyway.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::schema_meter::Meter;
use crate::schema_shape::{text_weight, Array, Content, Named, Object, Options, Shape, Text};

/// llguidance's own bound.
const DEPTH_MAX: u32 = 128;
/// Larger integers are rounded when they become a double.
const EXACT_MAX: u64 = 1 << 53;

const IN_PLACE: [&str; 6] = ["const", "enum", "allOf", "anyOf", "oneOf", "$ref"];
const CONSTRAINING: [&str; 21] = [
    "type", "items", "additionalItems", "prefixItems", "minItems", "maxItems", "properties",
    "additionalProperties", "patternProperties", "required", "minProperties", "maxProperties", "minLength",
    "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
];
const ANNOTATIONS: [&str; 15] = [
    "$anchor", "$defs", "definitions", "$schema", "$id", "id", "$comment", "title", "description", "default",
    "readOnly", "writeOnly", "examples", "contentMediaType", "contentEncoding",
];
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// Errors name the limit.
pub fn check(schema: &Value) -> Result<(), String> {
    check_onto(schema, Meter::default()).map(|_| ())
}

/// What `meter` has counted before counts too.
fn check_onto(schema: &Value, meter: Meter) -> Result<Meter, String> {
    let mut walk = Walk { root: schema, definitions: HashMap::new(), seen: HashSet::new(), meter };
    walk.schema(schema)?;
    Ok(walk.meter)
}

/// The schemas in a text of llguidance's Lark, together: each follows "%json" at once.
pub fn check_embedded(lark: &str) -> Result<(), String> {
    const KEYWORD: &str = "%json";
    let mut meter = Meter::default();
    for (at, _) in lark.match_indices(KEYWORD) {
        let mut values = serde_json::Deserializer::from_str(&lark[at + KEYWORD.len()..]).into_iter::<Value>();
        if let Some(Ok(schema)) = values.next() {
            meter = check_onto(&schema, meter)?;
        }
    }
    Ok(())
}

/// What `reference` names inside of the schema.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    if reference == "#" || reference == "#/" {
        return Some(root);
    }
    reference.strip_prefix("#/")?.split('/').try_fold(root, |value, name| match value {
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

type Keywords<'a> = HashMap<&'a str, &'a Value>;

struct Walk<'a> {
    root: &'a Value,
    definitions: HashMap<&'a str, Shape>,
    seen: HashSet<&'a str>,
    meter: Meter,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, value: &'a Value) -> Result<Shape, String> {
        self.meter.add(1)?;
        match value {
            Value::Bool(false) => Ok(Shape::Never),
            Value::Object(map) => {
                let shape = self.object_of_keywords(map, std::ptr::eq(value, self.root))?;
                self.normal(shape)
            }
            _ => Ok(Shape::Any),
        }
    }

    fn schemas(&mut self, list: &'a Value) -> Result<Vec<Shape>, String> {
        list.as_array().into_iter().flatten().map(|value| self.schema(value)).collect()
    }

    /// Keywords apply in their order; those in a row that are not `IN_PLACE` apply at once.
    fn object_of_keywords(&mut self, map: &'a Map<String, Value>, is_root: bool) -> Result<Shape, String> {
        self.meter.step()?;
        let constrains = |key: &str| CONSTRAINING.contains(&key) || IN_PLACE.contains(&key);
        if !map.keys().any(|key| constrains(key)) {
            return Ok(Shape::Any);
        }
        let mut result = Shape::Any;
        let mut pending = Keywords::new();
        for (key, value) in map {
            let key = key.as_str();
            if IN_PLACE.contains(&key) {
                result = self.flush(std::mem::take(&mut pending), map, result)?;
                result = self.apply(key, value, result)?;
            } else if !ANNOTATIONS.contains(&key) && !(is_root && key == "x-guidance") {
                pending.insert(key, value);
            }
        }
        self.flush(pending, map, result)
    }

    fn flush(&mut self, mut pending: Keywords<'a>, map: &'a Map<String, Value>, result: Shape) -> Result<Shape, String> {
        if pending.is_empty() {
            return Ok(result);
        }
        if let Some(types) = map.get("type") {
            pending.insert("type", types);
        }
        let shape = self.by_types(&pending, map)?;
        self.intersect(result, shape, 0)
    }

    fn by_types(&mut self, keywords: &Keywords<'a>, map: &'a Map<String, Value>) -> Result<Shape, String> {
        let types: Vec<&str> = match keywords.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => TYPES.to_vec(),
        };
        let mut options = Vec::with_capacity(types.len());
        for name in types {
            self.meter.step()?;
            self.meter.add(1)?;
            options.push(match name {
                "null" => Shape::Null,
                "boolean" => Shape::Boolean(None),
                "string" => {
                    let pattern = keywords.get("pattern").and_then(|value| value.as_str());
                    let is_any = pattern.is_none() && !keywords.contains_key("format");
                    let content = if is_any { Content::Any } else { Content::Pattern };
                    Shape::Text(Text { content, weight: text_weight(pattern.unwrap_or("")) })
                }
                "array" => self.array(keywords, map)?,
                "object" => self.object(keywords, map)?,
                _ => Shape::Number,
            });
        }
        Ok(if options.len() == 1 { options.swap_remove(0) } else { Options::shape(options, false) })
    }

    fn array(&mut self, keywords: &Keywords<'a>, map: &'a Map<String, Value>) -> Result<Shape, String> {
        let additional = keywords.get("additionalItems").copied();
        let (prefix, rest) = match keywords.get("items").copied() {
            Some(items @ Value::Array(_)) => (Some(items), additional),
            items if additional.is_some() => (None, items),
            items => (keywords.get("prefixItems").copied(), items),
        };
        let prefix = match prefix {
            Some(list) => self.schemas(list)?,
            // Items are those after a prefix that another run of keywords has.
            None if rest.is_some() => {
                vec![Shape::Any; map.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len)]
            }
            None => Vec::new(),
        };
        let rest = rest.map(|value| self.schema(value)).transpose()?;
        Ok(Array::shape(prefix, rest))
    }

    fn named(&mut self, map: Option<&'a Value>) -> Result<Named, String> {
        let mut named = Named::new();
        for (name, value) in map.and_then(Value::as_object).into_iter().flatten() {
            self.meter.add(text_weight(name))?;
            named.push((name.as_str().into(), self.schema(value)?));
        }
        Ok(named)
    }

    fn object(&mut self, keywords: &Keywords<'a>, map: &'a Map<String, Value>) -> Result<Shape, String> {
        let mut properties = self.named(keywords.get("properties").copied())?;
        let patterns = self.named(keywords.get("patternProperties").copied())?;
        self.meter.compare_patterns(&patterns)?;
        for (name, shape) in properties.iter_mut() {
            if let Some(pattern) = self.meter.matching(&patterns, name) {
                self.meter.add(pattern.weight())?;
                *shape = self.intersect(shape.clone(), pattern, 0)?;
            }
        }
        let additional = keywords.get("additionalProperties").copied();
        let additional = additional.map(|value| self.schema(value)).transpose()?;
        if additional.is_some() && !keywords.contains_key("properties") {
            let others = map.get("properties").and_then(Value::as_object);
            for name in others.into_iter().flat_map(|map| map.keys()) {
                self.meter.add(text_weight(name))?;
                properties.push((name.as_str().into(), Shape::Any));
            }
        }
        let mut required = HashSet::new();
        for name in keywords.get("required").and_then(|value| value.as_array()).into_iter().flatten() {
            let name = name.as_str().unwrap_or("");
            self.meter.add(text_weight(name))?;
            required.insert(name.into());
        }
        Ok(Object::shape(properties, patterns, additional, required))
    }

    fn apply(&mut self, keyword: &str, value: &'a Value, result: Shape) -> Result<Shape, String> {
        match keyword {
            "const" => {
                let shape = self.constant(value, keyword)?;
                self.intersect(result, shape, 0)
            }
            "enum" => {
                let values = value.as_array().into_iter().flatten();
                let options = values.map(|value| self.constant(value, keyword)).collect::<Result<_, _>>()?;
                self.intersect(result, Options::shape(options, false), 0)
            }
            "allOf" => {
                let mut result = result;
                for value in value.as_array().into_iter().flatten() {
                    let shape = self.schema(value)?;
                    result = self.intersect(result, shape, 0)?;
                }
                Ok(result)
            }
            "anyOf" | "oneOf" => {
                let options = self.schemas(value)?;
                self.intersect(result, Options::shape(options, keyword == "oneOf"), 0)
            }
            _ => match (value.as_str(), &result) {
                (None, _) => Ok(Shape::Never),
                (Some(reference), Shape::Any) => {
                    self.define(reference)?;
                    Ok(Shape::Reference(reference.into()))
                }
                (Some(reference), _) => {
                    self.define(reference)?;
                    let target = self.target(reference)?;
                    self.intersect(result, target, 1)
                }
            },
        }
    }

    fn constant(&mut self, value: &Value, keyword: &str) -> Result<Shape, String> {
        self.meter.add(1)?;
        Ok(match value {
            Value::Null => Shape::Null,
            Value::Bool(value) => Shape::Boolean(Some(*value)),
            Value::Number(number) => {
                let is_exact = match (number.as_u64(), number.as_i64(), number.as_f64()) {
                    (Some(value), _, _) => value <= EXACT_MAX,
                    (_, Some(value), _) => value.unsigned_abs() <= EXACT_MAX,
                    (_, _, Some(value)) => value.fract() != 0.0 || value.abs() <= EXACT_MAX as f64,
                    _ => false,
                };
                if !is_exact {
                    return Err(format!(
                        "{keyword}: expected integers between -{EXACT_MAX} and {EXACT_MAX}, found {number}: larger \
                         ones would be rounded"
                    ));
                }
                Shape::Number
            }
            Value::String(text) => {
                self.meter.add(text_weight(text))?;
                Shape::literal(text)
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.constant(item, keyword)).collect::<Result<_, _>>()?;
                Array::shape(items, Some(Shape::Never))
            }
            Value::Object(map) => {
                let (mut properties, mut required) = (Named::new(), HashSet::new());
                for (name, value) in map {
                    self.meter.add(2 * text_weight(name))?;
                    let name: Rc<str> = name.as_str().into();
                    required.insert(name.clone());
                    properties.push((name, self.constant(value, keyword)?));
                }
                Object::shape(properties, Named::new(), Some(Shape::Never), required)
            }
        })
    }

    fn define(&mut self, reference: &'a str) -> Result<(), String> {
        if self.seen.insert(reference) {
            if let Some(value) = resolve(self.root, reference) {
                let shape = self.schema(value)?;
                self.definitions.insert(reference, shape);
            }
        }
        Ok(())
    }

    /// The schema that `reference` names, which llguidance copies here.
    fn target(&mut self, reference: &str) -> Result<Shape, String> {
        let Some(shape) = self.definitions.get(reference).cloned() else { return Ok(Shape::Never) };
        self.meter.add(shape.weight())?;
        Ok(shape)
    }

    /// Without nested, impossible and single options.
    fn normal(&mut self, shape: Shape) -> Result<Shape, String> {
        let Shape::Options(options) = &shape else { return Ok(shape) };
        let exclusive = options.exclusive;
        let mut kept = Vec::with_capacity(options.all.len());
        for option in &options.all {
            match option {
                Shape::Any if !exclusive => return Ok(Shape::Any),
                Shape::Never => {}
                Shape::Options(nested) if nested.exclusive == exclusive => kept.extend(nested.all.iter().cloned()),
                other => kept.push(other.clone()),
            }
        }
        if kept.len() <= 1 {
            return Ok(kept.pop().unwrap_or(Shape::Never));
        }
        let stays_exclusive = exclusive && !self.meter.all_disjoint(&kept)?;
        Ok(Options::shape(kept, stays_exclusive))
    }

    fn intersect(&mut self, left: Shape, right: Shape, depth: u32) -> Result<Shape, String> {
        self.meter.step()?;
        if depth > DEPTH_MAX {
            return Ok(Shape::Never);
        }
        let depth = depth + 1;
        let shape = match (left, right) {
            (Shape::Any, other) | (other, Shape::Any) => other,
            (Shape::Never, _) | (_, Shape::Never) => Shape::Never,
            (Shape::Reference(reference), other) => {
                let target = self.target(&reference)?;
                self.intersect(target, other, depth + 1)?
            }
            (other, Shape::Reference(reference)) => {
                let target = self.target(&reference)?;
                self.intersect(other, target, depth + 1)?
            }
            (Shape::Options(options), other) if options.exclusive => self.distribute(&options, &other, depth)?,
            (other, Shape::Options(options)) if options.exclusive => self.distribute(&options, &other, depth)?,
            (Shape::Options(options), other) | (other, Shape::Options(options)) => {
                self.distribute(&options, &other, depth)?
            }
            (Shape::Text(one), Shape::Text(other)) => Shape::Text(one.and(other)),
            (Shape::Array(one), Shape::Array(other)) => self.intersect_arrays(&one, &other, depth)?,
            (Shape::Object(one), Shape::Object(other)) => self.intersect_objects(&one, &other, depth)?,
            (Shape::Boolean(one), Shape::Boolean(other)) => match (one, other) {
                (Some(a), Some(b)) if a != b => Shape::Never,
                _ => Shape::Boolean(one.or(other)),
            },
            (one, other) if one.is_same_kind(&other) => one,
            _ => Shape::Never,
        };
        self.normal(shape)
    }

    fn distribute(&mut self, options: &Options, other: &Shape, depth: u32) -> Result<Shape, String> {
        let mut all = Vec::with_capacity(options.all.len());
        for option in &options.all {
            self.meter.add(other.weight())?;
            all.push(self.intersect(option.clone(), other.clone(), depth)?);
        }
        Ok(Options::shape(all, options.exclusive))
    }

    fn intersect_arrays(&mut self, one: &Array, other: &Array, depth: u32) -> Result<Shape, String> {
        let mut prefix = Vec::new();
        for index in 0..one.prefix.len().max(other.prefix.len()) {
            let (left, right) = (self.item(one, index)?, self.item(other, index)?);
            prefix.push(self.intersect(left, right, depth)?);
        }
        let rest = self.intersect_optional(&one.rest, &other.rest, depth)?;
        Ok(Array::shape(prefix, rest))
    }

    fn item(&mut self, array: &Array, index: usize) -> Result<Shape, String> {
        if let Some(item) = array.prefix.get(index) {
            return Ok(item.clone());
        }
        let rest = array.rest.clone().unwrap_or(Shape::Any);
        self.meter.add(rest.weight())?;
        Ok(rest)
    }

    fn intersect_optional(&mut self, one: &Option<Shape>, other: &Option<Shape>, depth: u32) -> Result<Option<Shape>, String> {
        match (one, other) {
            (Some(one), Some(other)) => self.intersect(one.clone(), other.clone(), depth).map(Some),
            _ => Ok(one.clone().or_else(|| other.clone())),
        }
    }

    fn intersect_objects(&mut self, one: &Object, other: &Object, depth: u32) -> Result<Shape, String> {
        let mut properties = Named::new();
        for (name, shape) in &one.properties {
            let beside = other.property(name, &mut self.meter);
            self.meter.add(beside.weight())?;
            properties.push((name.clone(), self.intersect(shape.clone(), beside, depth)?));
        }
        for (name, shape) in other.properties.iter().filter(|(name, _)| !one.has(name)) {
            let beside = one.other_property(name, &mut self.meter);
            self.meter.add(beside.weight())?;
            properties.push((name.clone(), self.intersect(beside, shape.clone(), depth)?));
        }
        let patterns = self.intersect_patterns(one, other, depth)?;
        self.meter.compare_patterns(&patterns)?;
        let additional = self.intersect_optional(&one.additional, &other.additional, depth)?;
        let required = one.required.union(&other.required).cloned().collect();
        Ok(Object::shape(properties, patterns, additional, required))
    }

    /// A pattern of one side alone must hold beside the other side's additional properties.
    fn intersect_patterns(&mut self, one: &Object, other: &Object, depth: u32) -> Result<Named, String> {
        let mut left: HashMap<Rc<str>, Shape> = other.patterns.iter().cloned().collect();
        let mut patterns = Named::new();
        for (pattern, shape) in &one.patterns {
            let beside = left.remove(pattern).or_else(|| other.additional.clone()).unwrap_or(Shape::Any);
            self.meter.add(beside.weight())?;
            patterns.push((pattern.clone(), self.intersect(shape.clone(), beside, depth)?));
        }
        for (pattern, shape) in other.patterns.iter().filter(|(pattern, _)| left.contains_key(pattern)) {
            let beside = one.additional.clone().unwrap_or(Shape::Any);
            self.meter.add(beside.weight())?;
            patterns.push((pattern.clone(), self.intersect(shape.clone(), beside, depth)?));
        }
        Ok(patterns)
    }
}
