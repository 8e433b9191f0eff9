//! Values against levels: both sides of every boundary, exact whole numbers, and all that is no
//! value at all.

use super::*;
use FieldValue as F;

fn test(op: Op, operand: Operand) -> Test {
    Test::new(op, &operand, 0.0).unwrap()
}

fn number(value: f64) -> Scalar {
    Scalar::Double(value)
}

#[test]
fn operators_at_their_boundary() {
    let six = || Operand::Number(6.0);
    let pair = || Operand::Pair([2.0, 8.0]);
    for (op, operand, value, expected) in [
        (Op::Gt, six(), 6.0, false),
        (Op::Gt, six(), 6.000_001, true),
        (Op::Ge, six(), 6.0, true),
        (Op::Ge, six(), 5.999_999, false),
        (Op::Lt, six(), 6.0, false),
        (Op::Lt, six(), 5.999_999, true),
        (Op::Le, six(), 6.0, true),
        (Op::Le, six(), 6.000_001, false),
        (Op::Eq, six(), 6.0, true),
        (Op::Eq, six(), 6.000_001, false),
        (Op::Ne, six(), 6.0, false),
        (Op::Ne, six(), 7.0, true),
        (Op::Inside, pair(), 2.0, true),
        (Op::Inside, pair(), 8.0, true),
        (Op::Inside, pair(), 1.999, false),
        (Op::Inside, pair(), 8.001, false),
        (Op::Outside, pair(), 2.0, false),
        (Op::Outside, pair(), 8.0, false),
        (Op::Outside, pair(), 1.999, true),
        (Op::Outside, pair(), 8.001, true),
        (Op::Ge, Operand::Integer(0), -0.0, true),
        (Op::Gt, Operand::Integer(0), -0.0, false),
    ] {
        let holds = test(op, operand).holds(&number(value));
        assert_eq!(holds, Some(expected), "{value} {op}");
    }
}

#[test]
fn whole_numbers_are_compared_exactly() {
    // Neither 2^53 + 1 nor i64::MAX is a double.
    let odd = 9_007_199_254_740_993_i64;
    let as_double = odd as f64;
    let gt = |operand| test(Op::Gt, operand);
    assert_eq!(
        gt(Operand::Integer(odd - 1)).holds(&Scalar::Int(odd)),
        Some(true)
    );
    assert_eq!(
        gt(Operand::Number(as_double)).holds(&Scalar::Int(odd)),
        Some(true)
    );
    assert_eq!(
        gt(Operand::Integer(odd)).holds(&number(as_double)),
        Some(false)
    );
    assert_eq!(
        gt(Operand::Number(9.3e18)).holds(&Scalar::Int(i64::MAX)),
        Some(false)
    );
    assert_eq!(
        gt(Operand::Number(-9.3e18)).holds(&Scalar::Int(i64::MIN)),
        Some(true)
    );
    assert_eq!(gt(Operand::Number(2.5)).holds(&Scalar::Int(2)), Some(false));
    assert_eq!(
        gt(Operand::Number(-2.5)).holds(&Scalar::Int(-2)),
        Some(true)
    );
    assert_eq!(gt(Operand::Number(2.5)).holds(&Scalar::Int(3)), Some(true));
}

#[test]
fn equality_of_fractions_needs_an_epsilon() {
    let near = Test::new(Op::Eq, &Operand::Number(0.3), 0.001).unwrap();
    assert_eq!(near.holds(&number(0.1 + 0.2)), Some(true));
    assert_eq!(near.holds(&number(0.302)), Some(false));
    assert_eq!(
        test(Op::Eq, Operand::Number(0.3)).holds(&number(0.1 + 0.2)),
        Some(false)
    );
}

#[test]
fn text_and_truth_compare_with_their_own_kind_only() {
    let fault = test(Op::Eq, Operand::Text("fault".into()));
    assert_eq!(fault.holds(&Scalar::Text("fault".into())), Some(true));
    assert_eq!(fault.holds(&Scalar::Text("ok".into())), Some(false));
    assert_eq!(fault.holds(&number(1.0)), None);
    let open = test(Op::Ne, Operand::Bool(true));
    assert_eq!(open.holds(&Scalar::Bool(false)), Some(true));
    assert_eq!(open.holds(&Scalar::Bool(true)), Some(false));
    assert_eq!(open.holds(&Scalar::Text("true".into())), None);
    assert_eq!(
        test(Op::Gt, Operand::Integer(0)).holds(&Scalar::Bool(true)),
        None
    );
}

#[test]
fn what_is_no_value_is_unknown() {
    for (value, coerce, expected) in [
        (None, false, Err(Unknown::Missing)),
        (Some(F::Null), false, Err(Unknown::Missing)),
        (Some(F::Double(f64::NAN)), false, Err(Unknown::NonFinite)),
        (
            Some(F::Double(f64::INFINITY)),
            false,
            Err(Unknown::NonFinite),
        ),
        (Some(F::Array(vec![])), false, Err(Unknown::Type)),
        (Some(F::Object(vec![])), false, Err(Unknown::Type)),
        (
            Some(F::Text("12.5".into())),
            false,
            Ok(Scalar::Text("12.5".into())),
        ),
        (Some(F::Text(" 12.5 ".into())), true, Ok(number(12.5))),
        (Some(F::Text("7".into())), true, Ok(Scalar::Int(7))),
        (Some(F::Text("1,5".into())), true, Err(Unknown::Type)),
        (Some(F::Text("NaN".into())), true, Err(Unknown::Type)),
        (Some(F::Text("inf".into())), true, Err(Unknown::Type)),
        (Some(F::Text("0x1F".into())), true, Err(Unknown::Type)),
        (Some(F::Text("1e999".into())), true, Err(Unknown::Type)),
        (Some(F::Text("".into())), true, Err(Unknown::Type)),
    ] {
        assert_eq!(scalar(value.as_ref(), coerce), expected, "{value:?}");
    }
}

#[test]
fn a_name_with_dots_leads_into_kept_structures() {
    let fields = vec![
        ("a.b".to_owned(), F::Int64(1)),
        (
            "m".to_owned(),
            F::Object(vec![(
                "list".to_owned(),
                F::Array(vec![F::Int64(4), F::Int64(5)]),
            )]),
        ),
    ];
    assert_eq!(lookup(&fields, "a.b"), Some(&F::Int64(1)));
    assert_eq!(lookup(&fields, "m.list.1"), Some(&F::Int64(5)));
    for absent in ["m.list.2", "m.x", "x", "a"] {
        assert_eq!(lookup(&fields, absent), None, "{absent}");
    }
}

#[test]
fn the_worse_of_two_numbers() {
    for (op, operand, a, b) in [
        (Op::Gt, Operand::Integer(6), 9.0, 7.0),
        (Op::Le, Operand::Integer(6), 1.0, 2.0),
        (Op::Outside, Operand::Pair([2.0, 8.0]), -5.0, 9.0),
        (Op::Inside, Operand::Pair([2.0, 8.0]), 5.0, 3.0),
    ] {
        let test = test(op, operand);
        assert!(test.worse(a, b) && !test.worse(b, a), "{op} {a} {b}");
        assert!(!test.worse(a, a), "{op}");
    }
}

#[test]
fn one_test_may_imply_another() {
    let gt = |n: i64| test(Op::Gt, Operand::Integer(n));
    let outside = |low, high| test(Op::Outside, Operand::Pair([low, high]));
    assert!(gt(6).implies(&gt(5)) && gt(6).implies(&gt(6)) && !gt(5).implies(&gt(6)));
    assert!(outside(0.0, 10.0).implies(&outside(2.0, 8.0)));
    assert!(!outside(2.0, 8.0).implies(&outside(0.0, 10.0)));
    assert!(!gt(6).implies(&outside(0.0, 1.0)));
}
