// SPDX-License-Identifier: GPL-2.0

//! Comparison of paired measurements, and spread of repeated ones.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// How much better one of two is, over pairs measured side by side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// Ratio of the geometric means.
    pub ratio: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs in which the ratio is above 1.
    pub won: usize,
    /// Pairs.
    pub pairs: usize,
}

impl Ratio {
    /// Compares pairs (of the new one, of the old one) of positive values of which larger ones are better. The interval
    /// is Student's, of the mean of the logarithms of the ratios.
    ///
    /// `None` with fewer than two pairs.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(new, old)| (new / old).ln()).collect();
        let n = logs.len() as f64;
        if logs.len() < 2 {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let student = StudentsT::new(0.0, 1.0, n - 1.0).expect("a positive number of degrees");
        let margin = student.inverse_cdf(0.975) * (variance / n).sqrt();
        Some(Self {
            ratio: mean.exp(),
            low: (mean - margin).exp(),
            high: (mean + margin).exp(),
            won: logs.iter().filter(|log| **log > 0.0).count(),
            pairs: logs.len(),
        })
    }
}

/// The middle one of the values, of two the mean; `None` without any.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted[low] + sorted[high]) / 2.0)
}

/// Largest minus smallest value, in per cent of the median.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    median(values.iter().copied()).map_or(0.0, |middle| 100.0 * (largest - smallest) / middle)
}

/// Geometric mean of positive values; `None` without any.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b.abs(), "{a} is not {b}");
    }

    #[test]
    fn equal_ratios_leave_no_doubt() {
        let ratio = Ratio::of(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]).unwrap();
        near(ratio.ratio, 2.0);
        near(ratio.low, 2.0);
        near(ratio.high, 2.0);
        assert_eq!((ratio.won, ratio.pairs), (3, 3));
    }

    #[test]
    fn the_interval_is_students() {
        // Logarithms -1, 0, 1: mean 0, deviation 1, t(0.975, 2) = 4.302652730.
        let e = std::f64::consts::E;
        let ratio = Ratio::of(&[(1.0, e), (1.0, 1.0), (e, 1.0)]).unwrap();
        near(ratio.ratio, 1.0);
        near(ratio.high.ln(), 4.302_652_730 / 3.0_f64.sqrt());
        near(ratio.low * ratio.high, 1.0);
        assert_eq!(ratio.won, 1);
    }

    #[test]
    fn one_pair_says_nothing() {
        assert_eq!(Ratio::of(&[(2.0, 1.0)]), None);
    }

    #[test]
    fn medians_and_spread() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(median([]), None);
        near(spread(&[99.0, 100.0, 101.0]), 2.0);
        near(geometric_mean(&[1.0, 4.0]).unwrap(), 2.0);
    }
}
