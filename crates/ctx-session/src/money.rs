//! Dollars, exact to a billionth: what model calls cost, and how much they may.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// US dollars. As JSON and in files a number; here in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Usd {
    pub nano: u64,
}

/// A dollar in billionths.
const DOLLAR: f64 = 1e9;

impl Usd {
    pub fn of_nano(nano: u64) -> Usd {
        Usd { nano }
    }

    /// None: not an amount that can be spent.
    pub fn of_dollars(dollars: f64) -> Option<Usd> {
        let is_amount = dollars.is_finite() && (0.0..1e9).contains(&dollars);
        is_amount.then(|| Usd { nano: (dollars * DOLLAR).round() as u64 })
    }

    pub fn dollars(self) -> f64 {
        self.nano as f64 / DOLLAR
    }
}

/// Cents where they say enough.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.dollars();
        if dollars > 0.0 && dollars < 1.0 { write!(f, "${dollars:.4}") } else { write!(f, "${dollars:.2}") }
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.dollars().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Usd, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Usd::of_dollars(dollars).ok_or_else(|| serde::de::Error::custom("not an amount of dollars"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_survives_its_json_and_is_shown_in_cents_where_they_say_enough() {
        let amount = Usd::of_dollars(1.25).unwrap();
        assert_eq!(serde_json::to_string(&amount).unwrap(), "1.25");
        assert_eq!(serde_json::from_str::<Usd>("1.25").unwrap(), amount);
        assert_eq!(serde_json::from_str::<Usd>("3").unwrap(), Usd::of_nano(3_000_000_000));
        assert!(serde_json::from_str::<Usd>("-1").is_err());
        let shown =
            [0.0, 0.0025, 0.5, 1.0, 12.345].map(|dollars| Usd::of_dollars(dollars).unwrap().to_string());
        assert_eq!(shown, ["$0.00", "$0.0025", "$0.5000", "$1.00", "$12.35"]);
    }
}
