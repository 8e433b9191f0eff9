//! What the end of a row means for the line it was on.
