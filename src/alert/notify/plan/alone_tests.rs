//! The table of suppression.
