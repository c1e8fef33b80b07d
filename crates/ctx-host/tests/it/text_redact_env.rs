//! The values of secret variables: many at once, and those that look like a table's column.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_text};

#[test]
fn of_very_many_values_each_is_struck_also_where_one_holds_another() {
    let mut vars: Vec<(String, String)> =
        (0..70).map(|at| (format!("S{at}_TOKEN"), format!("value-{at:03}-x7"))).collect();
    vars.push(("DB_PASSWORD".to_owned(), "mypassword123456".to_owned()));
    vars.push(("OUTER_TOKEN".to_owned(), "ab-value-003-x7-cd".to_owned()));
    let secrets = Arc::new(Secrets::from_env(vars.clone()));
    // So much around it that it is looked at in bulk.
    let lines = "   Compiling serde v1.0.229 (/home/tom/src/serde-1.0.229)\n".repeat(20);
    for (name, value) in vars {
        let out = redact_text(&secrets, &format!("{lines}found {value} here\n{lines}"));
        assert_eq!(out, format!("{lines}found [REDACTED:env:{name}] here\n{lines}"), "{value}");
    }
}

#[test]
fn a_key_that_opens_a_door_is_struck_even_if_it_looks_like_a_column() {
    for (name, value) in [
        ("API_KEY", "12345678901234567890"),
        ("STRIPE_API_KEY", "1234567890"),
        ("SECRET_KEY", "correct_horse_battery"),
        ("AWS_SECRET_ACCESS_KEY", "correct_horse_battery"),
    ] {
        let secrets = Arc::new(Secrets::from_env([(name, value)]));
        assert_eq!(redact_text(&secrets, &format!("x {value} y\n")), format!("x [REDACTED:env:{name}] y\n"));
    }
}
