"""Triton functions: residual + LayerNorm + cast and bias + GELU, with dropout, forward and backward.

Tensors are rows of ``width`` adjacent values in float32, float16 or bfloat16, in any mix; all arithmetic is float32.
The gradients of parameters are sums over all rows in two stages: each program adds the rows that it computes, and
``sum_partials`` adds the programs' sums. Nothing is added atomically, so that results do not change from run to run.

Dropout keeps no mask: its random numbers are a hash of place and seeds, which the backward pass computes again.
``seeds`` is int32, two for each site, a place in a network where something is dropped.

Source of the gradient of a layer norm: Ba et al., Layer Normalization, 2016 (supplementary material); of a GELU:
Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
"""

import triton
import triton.language as tl


@triton.jit
def _mix(bits):
    """Return uint32 whose bits depend on all bits of ``bits``, one to one. Source: C. Wellons, lowbias32, 2018."""
    bits ^= bits >> 16
    bits *= 0x7FEB352D
    bits ^= bits >> 15
    bits *= 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _load_seeds(seeds, site):
    """Return two seeds as uint32; gradients load theirs before they begin with rows, to wait for memory once."""
    first, second = tl.load(seeds + 2 * site), tl.load(seeds + 2 * site + 1)
    return first.to(tl.uint32, bitcast=True), second.to(tl.uint32, bitcast=True)


@triton.jit
def _find_places(row, column, rows, width):
    """Return where in a tensor (rows, width) the values of such rows and columns are, and which are inside it."""
    place = row[:, None].to(tl.int64) * width + column[None, :]
    return place, (row < rows)[:, None] & (column < width)[None, :]


@triton.jit
def _load(tensor, place, is_inside):
    """Return values as float32, 0 for those outside."""
    return tl.load(tensor + place, mask=is_inside, other=0.0).to(tl.float32)


@triton.jit
def _row_key(first_seed, second_seed, row):
    """Return random uint32 for rows: a function of the two seeds of a site and of the row's number."""
    return _mix(_mix(row.to(tl.uint32) ^ first_seed) ^ second_seed)


@triton.jit
def _factor(bits, rate):
    """Return 0 for a share ``rate`` of random uint32, and 1 / (1 - rate) for the others."""
    return tl.where((bits >> 8).to(tl.float32) * 5.9604644775390625e-08 >= rate, 1.0 / (1.0 - rate), 0.0)


@triton.jit
def _dropout(first_seed, second_seed, row, column, rate):
    """Return the factors (rows, columns) of dropout, the same in the forward and the backward pass."""
    spread = column.to(tl.uint32) * 0x9E3779B9
    return _factor(_mix(_row_key(first_seed, second_seed, row)[:, None] ^ spread[None, :]), rate)


@triton.jit(do_not_specialize=["rows", "rows_per_item", "site"])
def add_norm(
    x,
    branch,
    bias,
    seeds,
    weight,
    shift,
    total,
    normal,
    statistics,
    rows,
    rows_per_item,
    site,
    rate,
    path_rate,
    epsilon,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    has_branch: tl.constexpr,
    has_bias: tl.constexpr,
    has_dropout: tl.constexpr,
    has_path: tl.constexpr,
    has_norm: tl.constexpr,
):
    """Compute total = x + path * dropout(branch + bias) and normal = layer_norm(total).

    ``path`` drops the branch of whole items. ``statistics`` is (2, rows): each row's mean and 1 / deviation.
    """
    row = tl.program_id(0) * rows_at_once + tl.arange(0, rows_at_once)
    column = tl.arange(0, columns)
    is_row, is_column = row < rows, column < width
    place, is_inside = _find_places(row, column, rows, width)
    value = _load(x, place, is_inside)
    if has_branch:
        added = _load(branch, place, is_inside)
        if has_bias:
            added += _load(bias, column, is_column)[None, :]
        if has_dropout:
            first_seed, second_seed = _load_seeds(seeds, site)
            added *= _dropout(first_seed, second_seed, row, column, rate)
        if has_path:
            first_seed, second_seed = _load_seeds(seeds, site + 1)
            added *= _factor(_row_key(first_seed, second_seed, row // rows_per_item), path_rate)[:, None]
        rounded = (value + added).to(total.dtype.element_ty)
        tl.store(total + place, rounded, mask=is_inside)
        value = rounded.to(tl.float32)  # the gradient reads the rounded sum, so it is what is normalized
    if has_norm:
        row_mean = tl.sum(value, 1) * (1.0 / width)  # for width 1 exactly the value itself
        centered = tl.where(is_column[None, :], value - row_mean[:, None], 0.0)
        row_scale = 1.0 / tl.sqrt_rn(tl.sum(centered * centered, 1) * (1.0 / width) + epsilon)
        tl.store(statistics + row, row_mean, mask=is_row)
        tl.store(statistics + rows + row, row_scale, mask=is_row)
        weights, shifts = _load(weight, column, is_column), _load(shift, column, is_column)
        result = centered * row_scale[:, None] * weights[None, :] + shifts[None, :]
        tl.store(normal + place, result.to(normal.dtype.element_ty), mask=is_inside)


@triton.jit
def _center(gradient, standard, width):
    """Return the gradient of standardized rows without its parts along their mean and along themselves."""
    along_mean = tl.sum(gradient, 1)[:, None] * (1.0 / width)
    along_standard = tl.sum(gradient * standard, 1)[:, None] * (1.0 / width)
    return gradient - along_mean - standard * along_standard


@triton.jit(do_not_specialize=["rows", "rows_per_item", "site"])
def add_norm_backward(
    normal_gradient,
    total_gradient,
    total,
    statistics,
    weight,
    seeds,
    x_gradient,
    branch_gradient,
    partials,
    rows,
    rows_per_item,
    site,
    rate,
    path_rate,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    has_total_gradient: tl.constexpr,
    has_branch: tl.constexpr,
    has_bias: tl.constexpr,
    has_dropout: tl.constexpr,
    has_path: tl.constexpr,
    has_norm: tl.constexpr,
):
    """Compute the gradients of x and branch, and each program's share of the sums for the parameters.

    ``partials`` is (1 to 3, programs, width): with has_norm the sums for weight and shift, and with has_bias for bias.
    Without has_norm the gradient of x is that of the total, and not stored.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, columns)
    is_column = column < width
    if has_norm:
        weights = _load(weight, column, is_column)[None, :]
    if has_dropout:
        first_seed, second_seed = _load_seeds(seeds, site)
    if has_path:
        first_of_path, second_of_path = _load_seeds(seeds, site + 1)
    weight_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    shift_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    bias_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    start = program * rows_at_once
    while start < rows:  # not a range of scalars: Triton's interpreter has none with NumPy 2.4
        row = start + tl.arange(0, rows_at_once)
        place, is_inside = _find_places(row, column, rows, width)
        result = tl.zeros([rows_at_once, columns], dtype=tl.float32)
        if has_norm:
            gradient, value = _load(normal_gradient, place, is_inside), _load(total, place, is_inside)
            row_mean = _load(statistics, row, row < rows)[:, None]
            row_scale = _load(statistics, rows + row, row < rows)[:, None]
            standard = tl.where(is_inside, (value - row_mean) * row_scale, 0.0)
            result += row_scale * _center(gradient * weights, standard, width)
            weight_sums += gradient * standard
            shift_sums += gradient
        if has_total_gradient:
            result += _load(total_gradient, place, is_inside)
        if has_norm:
            tl.store(x_gradient + place, result.to(x_gradient.dtype.element_ty), mask=is_inside)
        if has_branch:
            if has_path:
                key = _row_key(first_of_path, second_of_path, row // rows_per_item)
                result *= _factor(key, path_rate)[:, None]
            if has_dropout:
                result *= _dropout(first_seed, second_seed, row, column, rate)
            tl.store(branch_gradient + place, result.to(branch_gradient.dtype.element_ty), mask=is_inside)
        if has_bias:
            bias_sums += tl.where(is_inside, result, 0.0)
        start += programs * rows_at_once
    first = partials + program * width + column
    if has_norm:
        tl.store(first, tl.sum(weight_sums, 0), mask=is_column)
        tl.store(first + programs * width, tl.sum(shift_sums, 0), mask=is_column)
        first += 2 * programs * width
    if has_bias:
        tl.store(first, tl.sum(bias_sums, 0), mask=is_column)


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


@triton.jit(do_not_specialize=["rows", "site"])
def bias_gelu(
    x,
    bias,
    seeds,
    out,
    rows,
    site,
    rate,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    has_dropout: tl.constexpr,
):
    """Compute out = dropout(GELU(x + bias)), the exact one: v * P(a standard normal value is below v)."""
    row = tl.program_id(0) * rows_at_once + tl.arange(0, rows_at_once)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    place, is_inside = _find_places(row, column, rows, width)
    value = _load(x, place, is_inside) + _load(bias, column, column < width)[None, :]
    below, _ = _share_below(value, x.dtype.element_ty != tl.float32)
    result = value * below
    if has_dropout:
        first_seed, second_seed = _load_seeds(seeds, site)
        result *= _dropout(first_seed, second_seed, row, column, rate)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=is_inside)


@triton.jit(do_not_specialize=["rows", "site"])
def bias_gelu_backward(
    gradient,
    x,
    bias,
    seeds,
    x_gradient,
    partials,
    rows,
    site,
    rate,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    has_dropout: tl.constexpr,
):
    """Compute the gradient of x, and add each program's rows for that of bias; ``partials`` is (programs, width)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_column = column < width
    biases = _load(bias, column, is_column)[None, :]
    if has_dropout:
        first_seed, second_seed = _load_seeds(seeds, site)
    bias_sums = tl.zeros([rows_at_once, columns], dtype=tl.float32)
    start = program * rows_at_once
    while start < rows:  # not a range of scalars: Triton's interpreter has none with NumPy 2.4
        row = start + tl.arange(0, rows_at_once)
        place, is_inside = _find_places(row, column, rows, width)
        value = _load(x, place, is_inside) + biases
        below, bell = _share_below(value, x.dtype.element_ty != tl.float32)
        slope = below + value * (0.3989422804014327 * bell)
        result = _load(gradient, place, is_inside) * slope
        if has_dropout:
            result *= _dropout(first_seed, second_seed, row, column, rate)
        tl.store(x_gradient + place, result.to(x_gradient.dtype.element_ty), mask=is_inside)
        bias_sums += result
        start += programs * rows_at_once
    tl.store(partials + program * width + column, tl.sum(bias_sums, 0), mask=is_column)


@triton.jit
def _add_up(partials, index, programs, result, width, columns: tl.constexpr, rows_at_once: tl.constexpr):
    """Add the programs' sums number ``index``, (programs, width), to a result (width,)."""
    row = tl.arange(0, rows_at_once)
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    is_column = column < width
    is_inside = (row < programs)[:, None] & is_column[None, :]
    place = (index * programs + row)[:, None] * width + column[None, :]
    sums = tl.sum(tl.load(partials + place, mask=is_inside, other=0.0), 0)
    tl.store(result + column, sums.to(result.dtype.element_ty), mask=is_column)


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
    if index == 0:
        _add_up(partials, 0, programs, first, width, columns, rows_at_once)
    elif index == 1:
        _add_up(partials, 1, programs, second, width, columns, rows_at_once)
    else:
        _add_up(partials, 2, programs, third, width, columns, rows_at_once)


@triton.jit(do_not_specialize=["programs", "hidden_programs"])
def sum_partials_of_block(
    partials,
    hidden_partials,
    other_partials,
    first,
    second,
    third,
    hidden,
    other_first,
    other_second,
    other_third,
    programs,
    hidden_programs,
    width: tl.constexpr,
    columns: tl.constexpr,
    rows_at_once: tl.constexpr,
    hidden_width: tl.constexpr,
    hidden_columns: tl.constexpr,
    hidden_rows: tl.constexpr,
):
    """Add what the programs of two norms and of a GELU between them have summed, as ``sum_partials`` does.

    ``other_partials`` is (3, programs, width), ``partials`` (1 or 3, programs, width): the launch has 5 or 7 results.
    """
    index = tl.program_id(1)
    if index == 0:
        _add_up(hidden_partials, 0, hidden_programs, hidden, hidden_width, hidden_columns, hidden_rows)
    elif index == 1:
        _add_up(other_partials, 0, programs, other_first, width, columns, rows_at_once)
    elif index == 2:
        _add_up(other_partials, 1, programs, other_second, width, columns, rows_at_once)
    elif index == 3:
        _add_up(other_partials, 2, programs, other_third, width, columns, rows_at_once)
    elif index == 4:
        _add_up(partials, 0, programs, first, width, columns, rows_at_once)
    elif index == 5:
        _add_up(partials, 1, programs, second, width, columns, rows_at_once)
    else:
        _add_up(partials, 2, programs, third, width, columns, rows_at_once)


@triton.jit(do_not_specialize=["first_size", "second_size", "third_size", "fourth_size", "fifth_size"])
def cast_five(
    first,
    second,
    third,
    fourth,
    fifth,
    first_copy,
    second_copy,
    third_copy,
    fourth_copy,
    fifth_copy,
    first_size,
    second_size,
    third_size,
    fourth_size,
    fifth_size,
    values_at_once: tl.constexpr,
):
    """Copy five tensors of such sizes to other dtypes; the second number of a program says which one it copies."""
    index = tl.program_id(1)
    place = tl.program_id(0) * values_at_once + tl.arange(0, values_at_once)
    if index == 0:
        _cast(first, first_copy, first_size, place)
    elif index == 1:
        _cast(second, second_copy, second_size, place)
    elif index == 2:
        _cast(third, third_copy, third_size, place)
    elif index == 3:
        _cast(fourth, fourth_copy, fourth_size, place)
    else:
        _cast(fifth, fifth_copy, fifth_size, place)


@triton.jit
def _cast(source, copy, size, place):
    values = tl.load(source + place, mask=place < size, other=0.0)
    tl.store(copy + place, values.to(copy.dtype.element_ty), mask=place < size)
