//! Redis Cluster's hash slots.

use std::array;
use std::sync::LazyLock;

/// How many slots there are.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of `key`: of its hash tag, if it has one.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc16(0, hash_tag(key).unwrap_or(key)) % SLOTS
}

/// The slot of a key without a hash tag, in parts.
pub(crate) fn of_parts(parts: [&str; 2]) -> u16 {
    parts.iter().fold(0, |crc, part| crc16(crc, part.as_bytes())) % SLOTS
}

/// The text between the first `{` and the first `}` after it, unless it is empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let start = key.iter().position(|&byte| byte == b'{')? + 1;
    let len = key[start..].iter().position(|&byte| byte == b'}')?;
    (len > 0).then(|| &key[start..start + len])
}

/// A text of four characters whose slot is `slot`, always the same one.
///
/// The characters are from `@` to `O`, which differ in four bits. Each slot has four such texts; this is the first of them.
pub(crate) fn tag(slot: u16) -> Tag {
    let difference = slot ^ of(b"@@@@");
    // Without branches, which a processor could not predict.
    let text = (0..14).fold(0, |text, bit| text ^ (BITS[bit] * (difference >> bit & 1)));
    let [one, other] = [BITS[14], BITS[15]];
    let first = [text, text ^ one, text ^ other, text ^ one ^ other].into_iter().min();
    let [high, low] = first.expect("there are four").to_be_bytes();
    Tag([high >> 4, high & 0xF, low >> 4, low & 0xF].map(|bits| b'@' | bits))
}

/// A text that [`tag`] gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag([u8; 4]);

impl Tag {
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("ASCII")
    }
}

/// Changes to the sixteen bits of a text, to be combined with an exclusive or: fourteen that each flip one bit of its slot, and two that keep
/// the slot. The slots of texts depend linearly on those bits.
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

/// CRC16-CCITT as XMODEM has it: polynomial 0x1021, from zero, or from the checksum of the bytes before.
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
        // The names of keys in servers contain them: none may ever change.
        let all = (0..SLOTS).fold(0, |crc, slot| crc16(crc, tag(slot).as_str().as_bytes()));
        assert_eq!(all, 0xAC14);
    }
}
