"""Triton functions: residual + LayerNorm + cast and bias + GELU, forward and backward.

Tensors are rows of ``width`` adjacent values in float32, float16 or bfloat16, in any mix; all arithmetic is float32.
The gradients of parameters are sums over all rows in two stages: each program adds the rows that it computes, and
``sum_partials`` adds the programs' sums. Nothing is added atomically, so that results do not change from run to run.

Source of the gradient of a layer norm: Ba et al., Layer Normalization, 2016 (supplementary material); of a GELU:
Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "rows_per_item"])
def add_norm(
    x,
    branch,
    bias,
    keep,
    weight,
    shift,
    total,
    normal,
    statistics,
    rows,
    rows_per_item,
    epsilon,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    has_branch: tl.constexpr,
    has_bias: tl.constexpr,
    has_keep: tl.constexpr,
):
    """Compute total = x + keep * (branch + bias) and normal = layer_norm(total).

    ``statistics`` is (2, rows): each row's mean and 1 / deviation.
    """
    row = tl.program_id(0) * rows_at_once + tl.arange(0, rows_at_once)
    column = tl.arange(0, columns)
    is_row, is_column = row < rows, column < width
    is_inside = is_row[:, None] & is_column[None, :]
    place = row[:, None].to(tl.int64) * width + column[None, :]
    value = tl.load(x + place, mask=is_inside, other=0.0).to(tl.float32)
    if has_branch:
        added = tl.load(branch + place, mask=is_inside, other=0.0).to(tl.float32)
        if has_bias:
            added += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
        if has_keep:
            added *= tl.load(keep + row // rows_per_item, mask=is_row, other=0.0).to(tl.float32)[:, None]
        rounded = (value + added).to(total.dtype.element_ty)
        tl.store(total + place, rounded, mask=is_inside)
        value = rounded.to(tl.float32)  # the gradient reads the rounded sum, so it is what is normalized
    row_mean = tl.sum(value, 1) * (1.0 / width)  # for width 1 exactly the value itself
    centered = tl.where(is_column[None, :], value - row_mean[:, None], 0.0)
    row_scale = 1.0 / tl.sqrt_rn(tl.sum(centered * centered, 1) * (1.0 / width) + epsilon)
    tl.store(statistics + row, row_mean, mask=is_row)
    tl.store(statistics + rows + row, row_scale, mask=is_row)
    weights = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)
    shifts = tl.load(shift + column, mask=is_column, other=0.0).to(tl.float32)
    result = centered * row_scale[:, None] * weights[None, :] + shifts[None, :]
    tl.store(normal + place, result.to(normal.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["rows", "rows_per_item"])
def add_norm_backward(
    normal_gradient,
    total_gradient,
    total,
    statistics,
    weight,
    keep,
    x_gradient,
    branch_gradient,
    partials,
    rows,
    rows_per_item,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    has_total_gradient: tl.constexpr,
    has_branch: tl.constexpr,
    has_bias: tl.constexpr,
    has_keep: tl.constexpr,
):
    """Compute the gradients of x and branch, and each program's share of the sums for the parameters.

    ``partials`` is (2 or 3, programs, width): the sums for weight, shift and, with has_bias, bias.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, columns)
    is_column = column < width
    weights = tl.load(weight + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
    weight_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    shift_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    bias_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    start = program * rows_at_once
    while start < rows:  # not a range of scalars: Triton's interpreter has none with NumPy 2.4
        row = start + tl.arange(0, rows_at_once)
        is_row = row < rows
        is_inside = is_row[:, None] & is_column[None, :]
        place = row[:, None].to(tl.int64) * width + column[None, :]
        gradient = tl.load(normal_gradient + place, mask=is_inside, other=0.0).to(tl.float32)
        value = tl.load(total + place, mask=is_inside, other=0.0).to(tl.float32)
        row_mean = tl.load(statistics + row, mask=is_row, other=0.0)
        row_scale = tl.load(statistics + rows + row, mask=is_row, other=0.0)[:, None]
        standard = tl.where(is_inside, (value - row_mean[:, None]) * row_scale, 0.0)
        weighted = gradient * weights
        along_mean = tl.sum(weighted, 1)[:, None] * (1.0 / width)
        along_standard = tl.sum(weighted * standard, 1)[:, None] * (1.0 / width)
        result = row_scale * (weighted - along_mean - standard * along_standard)
        if has_total_gradient:
            result += tl.load(total_gradient + place, mask=is_inside, other=0.0).to(tl.float32)
        tl.store(x_gradient + place, result.to(x_gradient.dtype.element_ty), mask=is_inside)
        if has_branch:
            if has_keep:
                result *= tl.load(keep + row // rows_per_item, mask=is_row, other=0.0).to(tl.float32)[:, None]
            tl.store(branch_gradient + place, result.to(branch_gradient.dtype.element_ty), mask=is_inside)
        weight_sums += gradient * standard
        shift_sums += gradient
        if has_bias:
            bias_sums += tl.where(is_inside, result, 0.0)
        start += programs * rows_at_once
    first = partials + program * width + column
    tl.store(first, tl.sum(weight_sums, 0), mask=is_column)
    tl.store(first + programs * width, tl.sum(shift_sums, 0), mask=is_column)
    if has_bias:
        tl.store(first + 2 * programs * width, tl.sum(bias_sums, 0), mask=is_column)


@triton.jit
def _share_below(value, is_half: tl.constexpr):
    """Return P(a standard normal value is below ``value``), and exp(-value^2 / 2).

    For half precision by a formula that is off by at most 7.5e-8 and takes half the time of an error function.
    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, formula 7.1.26.
    """
    bell = tl.exp(-0.5 * value * value)
    if is_half:
        t = 1.0 / (1.0 + 0.23164189 * tl.abs(value))  # 0.3275911 / sqrt(2)
        series = 1.421413741 + t * (-1.453152027 + t * 1.061405429)
        series = t * (0.254829592 + t * (-0.284496736 + t * series))
        tail = 0.5 * series * bell
        below = tl.where(value < 0.0, tail, 1.0 - tail)
    else:
        below = 0.5 + 0.5 * tl.erf(value * 0.7071067811865476)
    return below, bell


@triton.jit(do_not_specialize=["rows"])
def bias_gelu(x, bias, out, rows, width: tl.constexpr, columns: tl.constexpr, rows_at_once: tl.constexpr):
    """Compute out = GELU(x + bias), the exact one: v * P(a standard normal value is below v)."""
    row = tl.program_id(0) * rows_at_once + tl.arange(0, rows_at_once)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_column = column < width
    is_inside = (row < rows)[:, None] & is_column[None, :]
    place = row[:, None].to(tl.int64) * width + column[None, :]
    value = tl.load(x + place, mask=is_inside, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
    below, _ = _share_below(value, x.dtype.element_ty != tl.float32)
    tl.store(out + place, (value * below).to(out.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["rows"])
def bias_gelu_backward(
    gradient,
    x,
    bias,
    x_gradient,
    partials,
    rows,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
):
    """Compute the gradient of x, and add each program's rows for that of bias; ``partials`` is (programs, width)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_column = column < width
    biases = tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
    bias_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    start = program * rows_at_once
    while start < rows:  # not a range of scalars: Triton's interpreter has none with NumPy 2.4
        row = start + tl.arange(0, rows_at_once)
        is_inside = (row < rows)[:, None] & is_column[None, :]
        place = row[:, None].to(tl.int64) * width + column[None, :]
        value = tl.load(x + place, mask=is_inside, other=0.0).to(tl.float32) + biases
        below, bell = _share_below(value, x.dtype.element_ty != tl.float32)
        slope = below + value * (0.3989422804014327 * bell)
        result = tl.load(gradient + place, mask=is_inside, other=0.0).to(tl.float32) * slope
        tl.store(x_gradient + place, result.to(x_gradient.dtype.element_ty), mask=is_inside)
        bias_sums += result
        start += programs * rows_at_once
    tl.store(partials + program * width + column, tl.sum(bias_sums, 0), mask=is_column)


@triton.jit(do_not_specialize=["programs"])
def sum_partials(
    partials,
    first,
    second,
    third,
    programs,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
):
    """Add the programs' sums (n, programs, width); the n results, (width,), go to ``first``, ``second``, ``third``."""
    index = tl.program_id(1)
    row = tl.arange(0, rows_at_once)
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    is_column = column < width
    is_inside = (row < programs)[:, None] & is_column[None, :]
    place = (index * programs + row)[:, None] * width + column[None, :]
    sums = tl.sum(tl.load(partials + place, mask=is_inside, other=0.0), 0)
    if index == 0:
        tl.store(first + column, sums.to(first.dtype.element_ty), mask=is_column)
    elif index == 1:
        tl.store(second + column, sums.to(second.dtype.element_ty), mask=is_column)
    else:
        tl.store(third + column, sums.to(third.dtype.element_ty), mask=is_column)
