//! Redis Cluster's hash slots.

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
pub(crate) fn tag(slot: u16) -> &'static str {
    str::from_utf8(&TAGS[usize::from(slot)]).expect("ASCII")
}

/// Each slot has four texts of four characters from `@` to `O`: those sixteen characters differ in
/// four bits, and CRC16 maps the sixteen bits of four of them one to one. Side by side, so that they stay in a cache.
static TAGS: LazyLock<Vec<[u8; 4]>> = LazyLock::new(|| {
    let mut tags = vec![[0; 4]; usize::from(SLOTS)];
    for bits in (0..=u16::MAX).rev() {
        let text =
            [12, 8, 4, 0].map(|shift| b'@' + u8::try_from(bits >> shift & 0xF).expect("four bits"));
        tags[usize::from(of(&text))] = text;
    }
    tags
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
            assert_eq!(of(tag(slot).as_bytes()), slot);
        }
    }
}
