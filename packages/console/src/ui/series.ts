/** As many as there are colours. */
export const SERIES_MAX = 6;
export const seriesColor = (index: number) => `var(--series-${(index % SERIES_MAX) + 1})`;
