// SPDX-License-Identifier: GPL-2.0

//! Plots as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

/// One line of a plot: its name and its points, x being bytes.
pub(crate) struct Line {
    /// In the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// x, y, and the ends of y's interval if there is one.
pub(crate) type Point = (f64, f64, Option<(f64, f64)>);

const SIZE: (u32, u32) = (800, 480);
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
];

/// Sizes in bytes, a power of two for each step.
struct Bytes(f64, f64);

impl Ranged for Bytes {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value.log2() - self.0.log2()) / (self.1.log2() - self.0.log2());
        limit.0 + (f64::from(limit.1 - limit.0) * part) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let last = self.1.log2() as i32;
        (self.0.log2().ceil() as i32..=last)
            .filter(|exponent| exponent % 2 == 0)
            .map(|exponent| 2_f64.powi(exponent))
            .collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0..self.1
    }
}

impl ValueFormatter<f64> for Bytes {
    fn format_ext(&self, value: &f64) -> String {
        if *value >= 1024.0 {
            format!("{} KiB", value / 1024.0)
        } else {
            format!("{value} B")
        }
    }
}

/// Draws lines over sizes in bytes; `logarithmic` for y, and a rule at y = 1 otherwise.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn by_size(
    path: &Path,
    title: &str,
    y_name: &str,
    lines: &[Line],
    logarithmic: bool,
) -> Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    if points().next().is_none() {
        return Ok(());
    }
    let xs = points().map(|point| point.0);
    let x = Bytes(
        xs.clone().fold(f64::MAX, f64::min) / 1.3,
        xs.fold(1.0, f64::max) * 1.3,
    );
    let low = points()
        .map(|(_, y, ends)| ends.map_or(*y, |ends| ends.0))
        .fold(f64::MAX, f64::min);
    let high = points()
        .map(|(_, y, ends)| ends.map_or(*y, |ends| ends.1))
        .fold(0.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = if logarithmic {
        draw(
            &area,
            title,
            y_name,
            lines,
            x,
            (low / 1.5..high * 1.5).log_scale(),
        )
    } else {
        draw(
            &area,
            title,
            y_name,
            lines,
            x,
            low.min(1.0) * 0.95..high.max(1.0) * 1.05,
        )
    };
    drawn
        .and_then(|()| area.present())
        .map_err(|error| anyhow!("{}: {error}", path.display()))
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a, Y>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    title: &str,
    y_name: &str,
    lines: &[Line],
    x: Bytes,
    y: Y,
) -> Drawn<'a>
where
    Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    area.fill(&WHITE)?;
    let ends = x.range();
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc("bytes of a write")
        .y_desc(y_name)
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series(LineSeries::new(
        [(ends.start, 1.0), (ends.end, 1.0)],
        BLACK.mix(0.5),
    ))?;
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        let points = line.points.iter().map(|point| (point.0, point.1));
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled()));
        chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled())))?;
        let bars = line.points.iter().filter_map(|(x, y, ends)| {
            let (low, high) = (*ends)?;
            Some(ErrorBar::new_vertical(*x, low, *y, high, color.filled(), 8))
        });
        chart.draw_series(bars)?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}
