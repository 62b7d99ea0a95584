// SPDX-License-Identifier: Apache-2.0
//! A JSON schema as llguidance builds it, reduced to what decides how large the result is. Parts are shared, so
//! a copy costs nothing here, and `weight` says what it would cost there.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::schema_meter::Meter;

/// Bytes of a text that weigh as much as a value.
const BYTES_PER_VALUE: usize = 64;

#[derive(Clone)]
pub enum Shape {
    Any,
    Never,
    Null,
    Number,
    Boolean(Option<bool>),
    Text(Text),
    Array(Rc<Array>),
    Object(Rc<Object>),
    Options(Rc<Options>),
    Reference(Rc<str>),
}

#[derive(Clone)]
pub struct Text {
    pub content: Content,
    pub weight: u64,
}

#[derive(Clone)]
pub enum Content {
    Any,
    Literal(Rc<str>),
    /// Of a pattern or a format.
    Pattern,
}

pub struct Array {
    pub prefix: Vec<Shape>,
    pub rest: Option<Shape>,
    weight: u64,
}

pub type Named = Vec<(Rc<str>, Shape)>;

fn index_of(named: &Named) -> HashMap<Rc<str>, usize> {
    named.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect()
}

pub struct Object {
    pub properties: Named,
    pub patterns: Named,
    pub additional: Option<Shape>,
    pub required: HashSet<Rc<str>>,
    /// Of `properties`.
    index: HashMap<Rc<str>, usize>,
    weight: u64,
}

pub struct Options {
    pub all: Vec<Shape>,
    /// oneOf: exactly one must hold.
    pub exclusive: bool,
    weight: u64,
}

pub fn text_weight(text: &str) -> u64 {
    1 + (text.len() / BYTES_PER_VALUE) as u64
}

fn sum(weights: impl Iterator<Item = u64>) -> u64 {
    weights.fold(1, u64::saturating_add)
}

impl Text {
    pub fn and(self, other: Text) -> Text {
        let weight = self.weight.saturating_add(other.weight);
        let content = match (self.content, other.content) {
            (Content::Any, one) | (one, Content::Any) => one,
            _ => Content::Pattern,
        };
        Text { content, weight }
    }
}

impl Array {
    pub fn shape(prefix: Vec<Shape>, rest: Option<Shape>) -> Shape {
        let weight = sum(prefix.iter().chain(&rest).map(Shape::weight));
        Shape::Array(Rc::new(Array { prefix, rest, weight }))
    }
}

impl Object {
    pub fn shape(
        properties: Named,
        patterns: Named,
        additional: Option<Shape>,
        required: HashSet<Rc<str>>,
    ) -> Shape {
        let named = properties.iter().chain(&patterns);
        let named = named.map(|(name, shape)| text_weight(name).saturating_add(shape.weight()));
        let others = required.iter().map(|name| text_weight(name));
        let weight = sum(named.chain(others).chain(additional.iter().map(Shape::weight)));
        let index = index_of(&properties);
        Shape::Object(Rc::new(Object { properties, patterns, additional, required, index, weight }))
    }

    pub fn has(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// What a property of this name must be.
    pub fn property(&self, name: &str, meter: &mut Meter) -> Shape {
        match self.index.get(name) {
            Some(at) => self.properties[*at].1.clone(),
            None => self.other_property(name, meter),
        }
    }

    /// The same, apart from `properties`.
    pub fn other_property(&self, name: &str, meter: &mut Meter) -> Shape {
        let pattern = meter.matching(&self.patterns, name);
        pattern.or_else(|| self.additional.clone()).unwrap_or(Shape::Any)
    }
}

impl Options {
    pub fn shape(all: Vec<Shape>, exclusive: bool) -> Shape {
        let weight = sum(all.iter().map(Shape::weight));
        Shape::Options(Rc::new(Options { all, exclusive, weight }))
    }
}

impl Shape {
    /// In values, each of which takes about 250 bytes.
    pub fn weight(&self) -> u64 {
        match self {
            Shape::Text(text) => text.weight,
            Shape::Array(array) => array.weight,
            Shape::Object(object) => object.weight,
            Shape::Options(options) => options.weight,
            _ => 1,
        }
    }

    pub fn literal(text: &str) -> Shape {
        Shape::Text(Text { content: Content::Literal(text.into()), weight: text_weight(text) })
    }

    pub fn is_same_kind(&self, other: &Shape) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}
