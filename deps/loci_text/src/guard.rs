// SPDX-License-Identifier: Apache-2.0
//! Rewrites a parsed template so that everything which can build more than it was given passes the budget.
//!
//! minijinja bounds instructions and recursion, but `s ~ s` forty times over is a terabyte, and a list put
//! into a list a million times overflows the stack when it is dropped. The rewritten tree has the same
//! meaning, with these filters (names no template can write) around the operations concerned:
//!   ADD, CONCAT, MULTIPLY  `+`, `~` and `*`, with the result's size checked before it is made
//!   CHARGE, EACH       around what filters, methods and loops read: its size is charged
//!   SETTLE             around what is assigned, built or compared: its depth and element count are checked
//!   SETTLE_MEMBER      the same around what is assigned to a namespace, which must not come to hold itself
//!   SCAN               around what is searched or indexed: reading it is charged
//! Template text is emitted as a constant, so that captured blocks are charged by the formatter.

use minijinja::machinery::ast::*;
use minijinja::machinery::{tokenize, Span, Token};
use minijinja::syntax::SyntaxConfig;
use minijinja::Value;

pub const ADD: &str = "loci/add";
pub const CONCAT: &str = "loci/concat";
pub const MULTIPLY: &str = "loci/multiply";
pub const CHARGE: &str = "loci/charge";
pub const EACH: &str = "loci/each";
pub const SETTLE: &str = "loci/settle";
pub const SETTLE_MEMBER: &str = "loci/settle_member";
pub const SCAN: &str = "loci/scan";

/// Filters and methods that make one element per character of a string, or are as slow.
const PER_CHARACTER: &[&str] = &[
    "list", "split", "lines", "splitlines", "sort", "unique", "reverse", "batch", "slice", "map", "select",
    "reject", "join", "first", "last", "min", "max", "title",
];

const TAG_TOKENS_MAX: usize = 2000;
const BRANCHES_MAX: usize = 500;

type Rewritten<T> = Result<T, String>;

/// The parser bounds brackets and blocks, but follows a chain ("a.b.c", "not not", elif) as deep as it
/// goes, and so do all that walk the tree. Bounds how long one tag and a run of elif can be.
pub fn check_chains(source: &str, syntax: SyntaxConfig) -> Rewritten<()> {
    let mut tokens = 0;
    let mut branches = 0;
    for token in tokenize(source, false, syntax) {
        // The parser says what is wrong with a token, and where.
        let Ok((token, span)) = token else { return Ok(()) };
        match token {
            Token::BlockStart | Token::VariableStart => tokens = 0,
            Token::Ident("elif") => branches += 1,
            _ => {}
        }
        tokens += 1;
        if tokens > TAG_TOKENS_MAX || branches > BRANCHES_MAX {
            return Err(format!(
                "line {}: more than {TAG_TOKENS_MAX} tokens in one tag, or {BRANCHES_MAX} elif in all",
                span.start_line
            ));
        }
    }
    Ok(())
}

pub fn rewrite<'a>(template: &Stmt<'a>) -> Rewritten<Stmt<'a>> {
    statement(template)
}

fn body<'a>(statements: &[Stmt<'a>]) -> Rewritten<Vec<Stmt<'a>>> {
    statements.iter().map(statement).collect()
}

fn statement<'a>(node: &Stmt<'a>) -> Rewritten<Stmt<'a>> {
    Ok(match node {
        Stmt::Template(n) => {
            Stmt::Template(Spanned::new(Template { children: body(&n.children)? }, n.span()))
        }
        Stmt::EmitExpr(n) => {
            Stmt::EmitExpr(Spanned::new(EmitExpr { expr: expression(&n.expr)? }, n.span()))
        }
        Stmt::EmitRaw(n) => {
            let text = Expr::Const(Spanned::new(Const { value: Value::from(n.raw) }, n.span()));
            Stmt::EmitExpr(Spanned::new(EmitExpr { expr: text }, n.span()))
        }
        Stmt::ForLoop(n) => {
            let loop_node = ForLoop {
                target: target(&n.target)?,
                iter: around(EACH, expression(&n.iter)?),
                filter_expr: optional(&n.filter_expr)?,
                recursive: n.recursive,
                body: body(&n.body)?,
                else_body: body(&n.else_body)?,
            };
            Stmt::ForLoop(Spanned::new(loop_node, n.span()))
        }
        Stmt::IfCond(n) => {
            let condition = IfCond {
                expr: expression(&n.expr)?,
                true_body: body(&n.true_body)?,
                false_body: body(&n.false_body)?,
            };
            Stmt::IfCond(Spanned::new(condition, n.span()))
        }
        Stmt::Set(n) => {
            let name = if has_member(&n.target) { SETTLE_MEMBER } else { SETTLE };
            let set = Set { target: target(&n.target)?, expr: around(name, expression(&n.expr)?) };
            Stmt::Set(Spanned::new(set, n.span()))
        }
        Stmt::Do(n) => Stmt::Do(Spanned::new(Do { call: call(&n.call)? }, n.span())),
        Stmt::Continue(n) => Stmt::Continue(Spanned::new(Continue, n.span())),
        Stmt::Break(n) => Stmt::Break(Spanned::new(Break, n.span())),
        _ => scoped_statement(node)?,
    })
}

fn scoped_statement<'a>(node: &Stmt<'a>) -> Rewritten<Stmt<'a>> {
    Ok(match node {
        Stmt::WithBlock(n) => {
            let mut assignments = Vec::with_capacity(n.assignments.len());
            for (name, value) in &n.assignments {
                assignments.push((target(name)?, around(SETTLE, expression(value)?)));
            }
            Stmt::WithBlock(Spanned::new(WithBlock { assignments, body: body(&n.body)? }, n.span()))
        }
        Stmt::SetBlock(n) => {
            // The captured text is charged as it is emitted.
            let set = SetBlock {
                target: target(&n.target)?,
                filter: optional(&n.filter)?,
                body: body(&n.body)?,
            };
            Stmt::SetBlock(Spanned::new(set, n.span()))
        }
        Stmt::AutoEscape(n) => {
            let escape = AutoEscape { enabled: expression(&n.enabled)?, body: body(&n.body)? };
            Stmt::AutoEscape(Spanned::new(escape, n.span()))
        }
        Stmt::FilterBlock(n) => {
            let filter = FilterBlock { filter: expression(&n.filter)?, body: body(&n.body)? };
            Stmt::FilterBlock(Spanned::new(filter, n.span()))
        }
        Stmt::Macro(n) => Stmt::Macro(Spanned::new(macro_node(n)?, n.span())),
        Stmt::CallBlock(n) => {
            let declaration = Spanned::new(macro_node(&n.macro_decl)?, n.macro_decl.span());
            let block = CallBlock { call: call(&n.call)?, macro_decl: declaration };
            Stmt::CallBlock(Spanned::new(block, n.span()))
        }
        Stmt::Block(n) => {
            let block = Block { name: n.name, required: n.required, body: body(&n.body)? };
            Stmt::Block(Spanned::new(block, n.span()))
        }
        Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
            return Err("import, include and extends name other templates, and a model has one".to_string())
        }
        _ => return Err("a statement that this build does not know".to_string()),
    })
}

fn macro_node<'a>(node: &Macro<'a>) -> Rewritten<Macro<'a>> {
    Ok(Macro {
        name: node.name,
        args: node.args.iter().map(expression).collect::<Rewritten<_>>()?,
        defaults: node.defaults.iter().map(expression).collect::<Rewritten<_>>()?,
        body: body(&node.body)?,
    })
}

fn optional<'a>(node: &Option<Expr<'a>>) -> Rewritten<Option<Expr<'a>>> {
    node.as_ref().map(expression).transpose()
}

fn around<'a>(name: &'static str, operand: Expr<'a>) -> Expr<'a> {
    let span = operand.span();
    Expr::Filter(Spanned::new(Filter { name, expr: Some(operand), args: Vec::new() }, span))
}

fn binary_filter<'a>(name: &'static str, left: Expr<'a>, right: Expr<'a>, span: Span) -> Expr<'a> {
    let args = vec![CallArg::Pos(right)];
    Expr::Filter(Spanned::new(Filter { name, expr: Some(left), args }, span))
}

/// Constants need no check: what a template spells out is as small as the template.
fn unless_constant<'a>(name: &'static str, operand: Expr<'a>) -> Expr<'a> {
    match operand {
        Expr::Const(_) => operand,
        other => around(name, other),
    }
}

fn scanned(operand: Expr) -> Expr {
    unless_constant(SCAN, operand)
}

/// Operands of a comparison: walked as far as both are nested, so not at all beside a constant.
fn compared<'a>(left: Expr<'a>, right: Expr<'a>) -> (Expr<'a>, Expr<'a>) {
    let shallow = matches!(left, Expr::Const(_)) || matches!(right, Expr::Const(_));
    let name = if shallow { SCAN } else { SETTLE };
    (unless_constant(name, left), unless_constant(name, right))
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Rewritten<Vec<CallArg<'a>>> {
    args.iter()
        .map(|argument| {
            Ok(match argument {
                CallArg::Pos(value) => CallArg::Pos(expression(value)?),
                CallArg::Kwarg(name, value) => CallArg::Kwarg(name, expression(value)?),
                CallArg::PosSplat(value) => CallArg::PosSplat(around(EACH, expression(value)?)),
                CallArg::KwargSplat(value) => CallArg::KwargSplat(around(EACH, expression(value)?)),
            })
        })
        .collect()
}

/// The receiver of a method is charged: most methods build a text as long as it.
fn call<'a>(node: &Spanned<Call<'a>>) -> Rewritten<Spanned<Call<'a>>> {
    let callee = match &node.expr {
        Expr::GetAttr(attribute) if !is_self(&attribute.expr) => {
            let name = if PER_CHARACTER.contains(&attribute.name) { EACH } else { CHARGE };
            let expr = around(name, expression(&attribute.expr)?);
            Expr::GetAttr(Spanned::new(GetAttr { expr, name: attribute.name }, attribute.span()))
        }
        Expr::GetAttr(_) | Expr::Var(_) => plain(&node.expr)?,
        other => expression(other)?,
    };
    Ok(Spanned::new(Call { expr: callee, args: arguments(&node.args)? }, node.span()))
}

/// `self.name()` calls a block, and must keep its shape to be recognised.
fn is_self(node: &Expr) -> bool {
    matches!(node, Expr::Var(variable) if variable.id == "self")
}

fn plain<'a>(node: &Expr<'a>) -> Rewritten<Expr<'a>> {
    match node {
        Expr::Var(n) => Ok(Expr::Var(Spanned::new(Var { id: n.id }, n.span()))),
        Expr::GetAttr(n) => {
            let attribute = GetAttr { expr: plain(&n.expr)?, name: n.name };
            Ok(Expr::GetAttr(Spanned::new(attribute, n.span())))
        }
        other => expression(other),
    }
}

fn expression<'a>(node: &Expr<'a>) -> Rewritten<Expr<'a>> {
    Ok(match node {
        Expr::Var(_) => plain(node)?,
        Expr::Const(n) => Expr::Const(Spanned::new(Const { value: n.value.clone() }, n.span())),
        Expr::Slice(n) => {
            let slice = Slice {
                expr: around(CHARGE, expression(&n.expr)?),
                start: optional(&n.start)?,
                stop: optional(&n.stop)?,
                step: optional(&n.step)?,
            };
            Expr::Slice(Spanned::new(slice, n.span()))
        }
        Expr::UnaryOp(n) => {
            let op = match n.op {
                UnaryOpKind::Not => UnaryOpKind::Not,
                UnaryOpKind::Neg => UnaryOpKind::Neg,
            };
            Expr::UnaryOp(Spanned::new(UnaryOp { op, expr: expression(&n.expr)? }, n.span()))
        }
        Expr::BinOp(n) => binary(n)?,
        Expr::Compare(n) => {
            let settled = |operand: &Expr<'a>| Ok::<_, String>(unless_constant(SETTLE, expression(operand)?));
            let mut ops = Vec::with_capacity(n.ops.len());
            for op in &n.ops {
                ops.push(CompareOp { op: op.op, expr: settled(&op.expr)? });
            }
            Expr::Compare(Spanned::new(Compare { expr: settled(&n.expr)?, ops }, n.span()))
        }
        Expr::IfExpr(n) => {
            let choice = IfExpr {
                test_expr: expression(&n.test_expr)?,
                true_expr: expression(&n.true_expr)?,
                false_expr: optional(&n.false_expr)?,
            };
            Expr::IfExpr(Spanned::new(choice, n.span()))
        }
        Expr::Filter(n) => {
            let name = if PER_CHARACTER.contains(&n.name) { EACH } else { CHARGE };
            let expr = optional(&n.expr)?.map(|operand| around(name, operand));
            let filter = Filter { name: n.name, expr, args: arguments(&n.args)? };
            Expr::Filter(Spanned::new(filter, n.span()))
        }
        Expr::Test(n) => {
            let operand = expression(&n.expr)?;
            let expr = if n.name == "defined" || n.name == "undefined" { operand } else { scanned(operand) };
            let test = Test { name: n.name, expr, args: arguments(&n.args)? };
            Expr::Test(Spanned::new(test, n.span()))
        }
        Expr::GetAttr(n) => {
            Expr::GetAttr(Spanned::new(GetAttr { expr: expression(&n.expr)?, name: n.name }, n.span()))
        }
        Expr::GetItem(n) => {
            let subscript_expr = expression(&n.subscript_expr)?;
            let item = GetItem { expr: scanned(expression(&n.expr)?), subscript_expr };
            Expr::GetItem(Spanned::new(item, n.span()))
        }
        Expr::Call(n) => Expr::Call(call(n)?),
        Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => literal(node)?,
    })
}

fn all<'a>(nodes: &[Expr<'a>]) -> Rewritten<Vec<Expr<'a>>> {
    nodes.iter().map(expression).collect()
}

fn literal<'a>(node: &Expr<'a>) -> Rewritten<Expr<'a>> {
    let built = match node {
        Expr::List(n) => Expr::List(Spanned::new(List { items: all(&n.items)? }, n.span())),
        Expr::Tuple(n) => Expr::Tuple(Spanned::new(Tuple { items: all(&n.items)? }, n.span())),
        Expr::Map(n) => {
            Expr::Map(Spanned::new(Map { keys: all(&n.keys)?, values: all(&n.values)? }, n.span()))
        }
        other => return expression(other),
    };
    Ok(around(SETTLE, built))
}

fn has_member(target: &Expr) -> bool {
    match target {
        Expr::GetAttr(_) => true,
        Expr::List(n) => n.items.iter().any(has_member),
        _ => false,
    }
}

/// What a loop or an assignment writes to: names, lists of them, attributes of namespaces.
fn target<'a>(node: &Expr<'a>) -> Rewritten<Expr<'a>> {
    Ok(match node {
        Expr::List(n) => {
            let items = n.items.iter().map(target).collect::<Rewritten<_>>()?;
            Expr::List(Spanned::new(List { items }, n.span()))
        }
        other => plain(other)?,
    })
}

fn binary<'a>(node: &Spanned<BinOp<'a>>) -> Rewritten<Expr<'a>> {
    let left = expression(&node.left)?;
    let right = expression(&node.right)?;
    let (left, right) = match node.op {
        BinOpKind::Add => return Ok(binary_filter(ADD, left, right, node.span())),
        BinOpKind::Concat => return Ok(binary_filter(CONCAT, left, right, node.span())),
        BinOpKind::Mul => return Ok(binary_filter(MULTIPLY, left, right, node.span())),
        BinOpKind::Eq
        | BinOpKind::Ne
        | BinOpKind::Lt
        | BinOpKind::Lte
        | BinOpKind::Gt
        | BinOpKind::Gte
        | BinOpKind::In => compared(left, right),
        BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Sub
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem
        | BinOpKind::Pow => (left, right),
    };
    Ok(Expr::BinOp(Spanned::new(BinOp { op: node.op, left, right }, node.span())))
}
