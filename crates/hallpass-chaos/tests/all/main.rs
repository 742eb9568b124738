//! Tests of the program.

mod check;
