//! Enums whose variants are words of the log and the API. One row per variant: serde, `as_str` and `Display` take the word
//! from it, so they cannot differ.

macro_rules! word_enum {
    ($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_about])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every word, in the order of the rows.
            pub const ALL: [$name; [$($word,)*].len()] = [$($name::$variant,)*];

            /// The word, as the log and the API write it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use word_enum;
