//! Random bits from the kernel, for nonces, marks and ids.

use rustix::rand::{GetRandomFlags, getrandom};

/// 128 fresh random bits.
pub fn random_bits() -> u128 {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let Some(rest) = bytes.get_mut(filled..) else { break };
        // Only an early boot or a signal can make this fail, and both pass.
        filled += getrandom(rest, GetRandomFlags::empty()).unwrap_or(0);
    }
    u128::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        assert_ne!(super::random_bits(), super::random_bits());
    }
}
