//! Natural order of names: digits compare as numbers, so `h2` comes before `h10`.

use std::cmp::Ordering;

/// Compares two names, runs of digits by their value.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    loop {
        let (x, rest_x) = token(left);
        let (y, rest_y) = token(right);
        if x.is_empty() || y.is_empty() {
            return x.len().cmp(&y.len()).then_with(|| a.cmp(b));
        }
        let order = if x[0].is_ascii_digit() && y[0].is_ascii_digit() {
            let (x, y) = (significant(x), significant(y));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (rest_x, rest_y);
    }
}

/// The leading run of digits, or the leading byte that is none.
fn token(bytes: &[u8]) -> (&[u8], &[u8]) {
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    bytes.split_at(digits.max(1).min(bytes.len()))
}

fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_by_value() {
        let mut names = vec!["h10", "h2", "leaf", "h1", "h02", "a10b2", "a10b1", "10", "9", ""];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["", "9", "10", "a10b1", "a10b2", "h1", "h02", "h2", "h10", "leaf"]);
    }
}
