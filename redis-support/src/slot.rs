//! The hash slots of Redis Cluster.

use std::array;
use std::sync::LazyLock;

/// The number of slots.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of `key`, which depends only on the hash tag, if `key` has one.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc16(0, hash_tag(key).unwrap_or(key)) % SLOTS
}

/// Returns the slot of a key without a hash tag. The key consists of two parts.
pub(crate) fn of_parts(parts: [&str; 2]) -> u16 {
    parts.iter().fold(0, |crc, part| crc16(crc, part.as_bytes())) % SLOTS
}

/// Returns the text between the first `{` and the next `}`, unless it is empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let start = key.iter().position(|&byte| byte == b'{')? + 1;
    let len = key[start..].iter().position(|&byte| byte == b'}')?;
    (len > 0).then(|| &key[start..start + len])
}

/// Returns a string of four characters whose slot is `slot`. The result for a slot never changes.
///
/// The characters range from `@` to `O`, which differ in four bits. Each slot has four such
/// strings, and this function returns the first one.
pub(crate) fn tag(slot: u16) -> Tag {
    let difference = slot ^ of(b"@@@@");
    // The code does not branch, because a processor could not predict the branches.
    let text = (0..14).fold(0, |text, bit| text ^ (BITS[bit] * (difference >> bit & 1)));
    let [one, other] = [BITS[14], BITS[15]];
    let first = [text, text ^ one, text ^ other, text ^ one ^ other].into_iter().min();
    let [high, low] = first.expect("there are four").to_be_bytes();
    Tag([high >> 4, high & 0xF, low >> 4, low & 0xF].map(|bits| b'@' | bits))
}

/// A string that [`tag`] returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag([u8; 4]);

impl Tag {
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("ASCII")
    }
}

/// Bit masks for the sixteen bits of a tag, to be combined with XOR. Fourteen masks flip one bit of
/// the slot each, and two masks leave the slot unchanged. Such masks exist because the slot depends
/// linearly on these bits.
static BITS: LazyLock<[u16; 16]> = LazyLock::new(|| {
    let mut rows = array::from_fn(|bit| {
        let mut text = [0; 4];
        text[3 - bit / 4] = 1 << (bit % 4);
        (of(&text), 1 << bit)
    });
    // Gaussian elimination leaves one bit of the slot in each row.
    for bit in 0..14 {
        let pivot = (bit..16).find(|&row: &usize| rows[row].0 >> bit & 1 == 1);
        rows.swap(bit, pivot.expect("each slot has a text"));
        let (slot, bits) = rows[bit];
        for (row, other) in rows.iter_mut().enumerate() {
            if row != bit && other.0 >> bit & 1 == 1 {
                *other = (other.0 ^ slot, other.1 ^ bits);
            }
        }
    }
    rows.map(|(_, bits)| bits)
});

/// Returns the CRC16-CCITT checksum in the XMODEM variant, with the polynomial 0x1021. `before` is
/// zero or the checksum of the preceding bytes.
fn crc16(before: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(before, |crc, &byte| {
        let index = usize::from((crc >> 8) ^ u16::from(byte));
        (crc << 8) ^ CRC_TABLE[index]
    })
}

const CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(0, b"123456789"), 0x31C3);
        assert_eq!(of(b"foo"), 12_182);
        assert_eq!(of_parts(["f", "oo"]), 12_182);
        assert_eq!(of(b"{user1000}.following"), of(b"{user1000}.followers"));
        assert_eq!(of(b"foo{}{bar}"), crc16(0, b"foo{}{bar}") % SLOTS);
        assert_eq!(of(b"foo{{bar}}zap"), crc16(0, b"{bar") % SLOTS);
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in 0..SLOTS {
            assert_eq!(of(tag(slot).as_str().as_bytes()), slot);
        }
    }

    #[test]
    fn tags_are_the_first_texts_of_their_slots() {
        assert_eq!(tag(of(b"@@@@")).as_str(), "@@@@");
        assert_eq!(tag(0).as_str(), "AKOB");
        assert_eq!(tag(12_182).as_str(), "@BBM");
        assert_eq!(tag(SLOTS - 1).as_str(), "@LDC");
        // Stored keys contain these tags, so the tags must never change.
        let all = (0..SLOTS).fold(0, |crc, slot| crc16(crc, tag(slot).as_str().as_bytes()));
        assert_eq!(all, 0xAC14);
    }
}
