//! The campaign, in one binary.
