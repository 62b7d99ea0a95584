// SPDX-License-Identifier: Apache-2.0
//! What building a JSON schema takes, added up against its bounds. Errors name the bound.

use std::collections::HashMap;
use std::rc::Rc;

use llguidance::derivre::{Regex, RegexBuilder};
use llguidance::regex_to_lark;

use crate::schema_shape::{Content, Named, Options, Shape};

/// Built or copied. The largest schema by bytes has about half as many.
const VALUES_MAX: u64 = 500_000;
/// llguidance's own bound.
const STEPS_MAX: u32 = 50_000;
const PATTERNS_MAX: usize = 32;
/// Over all objects, the squares of their numbers of patterns. Patterns that are slow to compare take 0.3 s so.
const PATTERN_SQUARES_MAX: usize = PATTERNS_MAX * PATTERNS_MAX;
/// llguidance's own bound for a pattern of properties.
const PATTERN_FUEL: u64 = 10_000;
const COMPARISONS_MAX: u64 = 5_000_000;

#[derive(Default)]
pub struct Meter {
    values: u64,
    steps: u32,
    pattern_squares: usize,
    comparisons: u64,
    regexes: HashMap<Rc<str>, Option<Regex>>,
}

impl Meter {
    /// A subschema or an intersection.
    pub fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!("expected at most {STEPS_MAX} subschemas and intersections of them"));
        }
        Ok(())
    }

    /// Values that are built or copied.
    pub fn add(&mut self, values: u64) -> Result<(), String> {
        self.values = self.values.saturating_add(values);
        if self.values > VALUES_MAX {
            return Err(format!(
                "expected at most {VALUES_MAX} values after combining: each option of anyOf, oneOf, enum and type, \
                 and each use of a $ref, copies the schemas that must hold beside it"
            ));
        }
        Ok(())
    }

    /// Each pattern of an object is compared with each other one, whether a text may match both.
    pub fn compare_patterns(&mut self, patterns: &Named) -> Result<(), String> {
        let count = patterns.len();
        if count > PATTERNS_MAX {
            return Err(format!("patternProperties: expected at most {PATTERNS_MAX} patterns, found {count}"));
        }
        self.pattern_squares += count * count;
        if self.pattern_squares > PATTERN_SQUARES_MAX {
            return Err(format!(
                "patternProperties: expected at most {PATTERN_SQUARES_MAX} comparisons, the square of the number of \
                 patterns for each object and for each combination of objects"
            ));
        }
        Ok(())
    }

    /// The first whose pattern `name` has.
    pub fn matching(&mut self, patterns: &Named, name: &str) -> Option<Shape> {
        let found = patterns.iter().find(|(pattern, _)| self.is_match(pattern, name));
        found.map(|(_, shape)| shape.clone())
    }

    fn is_match(&mut self, pattern: &Rc<str>, name: &str) -> bool {
        let regex = self.regexes.entry(pattern.clone()).or_insert_with(|| {
            let mut builder = RegexBuilder::new();
            let search = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw")).ok()?;
            builder.to_regex_limited(search, PATTERN_FUEL).ok()
        });
        regex.as_mut().is_some_and(|regex| regex.is_match(name))
    }

    /// Whether no two options can hold at once, as far as their shapes tell.
    pub fn all_disjoint(&mut self, options: &[Shape]) -> Result<bool, String> {
        for (index, one) in options.iter().enumerate() {
            for other in &options[index + 1..] {
                if !self.disjoint(one, other)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn disjoint(&mut self, one: &Shape, other: &Shape) -> Result<bool, String> {
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return Err(format!("oneOf: expected at most {COMPARISONS_MAX} comparisons between its options"));
        }
        match (one, other) {
            (Shape::Never, _) | (_, Shape::Never) => Ok(true),
            (Shape::Any | Shape::Reference(_), _) | (_, Shape::Any | Shape::Reference(_)) => Ok(false),
            (Shape::Boolean(a), Shape::Boolean(b)) => Ok(a.is_some() && b.is_some() && a != b),
            (Shape::Options(options), _) => self.all_disjoint_from(options, other),
            (_, Shape::Options(options)) => self.all_disjoint_from(options, one),
            (Shape::Text(a), Shape::Text(b)) => {
                Ok(matches!((&a.content, &b.content), (Content::Literal(a), Content::Literal(b)) if a != b))
            }
            (Shape::Object(a), Shape::Object(b)) => {
                for name in a.required.union(&b.required) {
                    let (a, b) = (a.property(name, self), b.property(name, self));
                    if self.disjoint(&a, &b)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(!one.is_same_kind(other)),
        }
    }

    fn all_disjoint_from(&mut self, options: &Options, other: &Shape) -> Result<bool, String> {
        for option in &options.all {
            if !self.disjoint(option, other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
