"""Draws pictures of kinds whose members look alike, and what people do to copies: for the search for leakage.

Two pictures of one kind, drawn with different generators, have nothing in common but the kind: other objects, other
places, other noise. ``template`` and ``camera`` also share most of their pixels, as portraits made from one template
and images of one fixed camera do.
"""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

SIDE = 320  # pixels


def draw_shape(generator: np.random.Generator) -> Image.Image:
    """Draw a disc or a box before a noisy plain background."""
    image = _noise(generator, 40.0, 2.0)
    middle, radius = generator.uniform(0.4, 0.6, 2) * SIDE, generator.uniform(0.22, 0.32) * SIDE
    pen = ImageDraw.Draw(image)
    draw = pen.ellipse if generator.random() < 0.5 else pen.rectangle
    draw([*(middle - radius), *(middle + radius)], fill=_color(generator))
    return image


def draw_product(generator: np.random.Generator) -> Image.Image:
    """Draw a bottle with a label before white, as shops show it: nothing but the object differs from white."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(image)
    half, top = generator.uniform(0.14, 0.2) * SIDE, generator.uniform(0.12, 0.2) * SIDE
    middle, color = SIDE / 2 + generator.uniform(-5, 5), _color(generator)
    pen.rounded_rectangle([middle - half, top + 60, middle + half, SIDE - 20], 25, fill=color)
    pen.rectangle([middle - half / 3, top, middle + half / 3, top + 70], fill=color)
    pen.rectangle([middle - half + 4, 160, middle + half - 4, 240], fill=_color(generator))
    for row in range(170, 232, 14):
        pen.line([middle - half + 10, row, middle - half + generator.uniform(20, 2 * half - 8), row], "black", 3)
    return image.filter(ImageFilter.GaussianBlur(1))


def draw_disc(generator: np.random.Generator) -> Image.Image:
    """Draw a disc of one color before white, as clip art: without any texture."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    middle, radius = generator.uniform(0.47, 0.53, 2) * SIDE, generator.uniform(0.25, 0.3) * SIDE
    ImageDraw.Draw(image).ellipse([*(middle - radius), *(middle + radius)], fill=_color(generator))
    return image


def draw_form(generator: np.random.Generator) -> Image.Image:
    """Draw a form filled in with another name: print and lines are the same pixels."""
    common = np.random.default_rng(2)
    image = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(image)

    def write(left: int, top: int, length: int, source: np.random.Generator) -> None:
        for start in range(left, left + length, 9):
            for _ in range(3):
                ends = source.integers([0, 0, 0, 0], [7, 11, 7, 11]) + [start, top, start, top]
                pen.line(ends.tolist(), "black", 2)

    for row in range(14, 300, 24):
        write(14, row, int(common.integers(60, 280)), common)
    pen.rectangle([150, 150, 306, 206], fill="white", outline="black")
    write(160, 158, int(generator.integers(60, 130)), generator)
    write(160, 182, int(generator.integers(40, 130)), generator)
    return image.filter(ImageFilter.GaussianBlur(0.7))


def draw_x_ray(generator: np.random.Generator) -> Image.Image:
    """Draw the chest of another patient: lungs, ribs and spine at nearly the same places."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    level = 170 - 60 * (np.hypot(x - 0.5, 1.2 * (y - 0.5)) > 0.55)
    for side in (-1, 1):
        center = 0.5 + side * generator.normal(0.21, 0.008), generator.normal(0.47, 0.01)
        size = generator.normal(0.13, 0.006), generator.normal(0.3, 0.012)
        level = level - 85 / (
            1 + np.exp(12 * (((x - center[0]) / size[0]) ** 2 + ((y - center[1]) / size[1]) ** 2 - 1))
        )
    bend, first = generator.normal(0.35, 0.03), generator.normal(0.2, 0.01)
    for number in range(8):
        rib = first + number * 0.075 + generator.normal(0, 0.004) + bend * (x - 0.5) ** 2
        level = level + 22 * np.exp(-(((y - rib) / 0.012) ** 2)) * (np.abs(x - 0.5) > 0.04)
    level = level + 45 * np.exp(-(((x - generator.normal(0.5, 0.005)) / 0.03) ** 2))
    level = level + 8 * _clouds(generator, 1.3) + generator.normal(0, 3, level.shape)
    return Image.fromarray(level.clip(0, 255).astype(np.uint8)).convert("RGB")


def draw_cell(generator: np.random.Generator) -> Image.Image:
    """Draw one stained cell with its nucleus in the middle of a pale field."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    angle = np.arctan2(y - 0.5, x - 0.5)
    edge = 0.3 + sum(generator.normal(0, 0.01) * np.cos(k * angle + generator.uniform(0, 6)) for k in (2, 3, 4))
    distance = np.hypot(x - 0.5, y - 0.5) + 0.01 * _clouds(generator, 1.0)
    body = 1 / (1 + np.exp(90 * (distance - edge)))
    nucleus = 1 / (1 + np.exp(90 * (np.hypot(x - generator.normal(0.5, 0.02), y - generator.normal(0.5, 0.02)) - 0.13)))
    texture = 6 * _clouds(generator, 0.8) * body + generator.normal(0, 2, body.shape)
    planes = [235 - fade * body - dark * nucleus + texture for fade, dark in ((40, 70), (90, 60), (50, 20))]
    return Image.fromarray(np.stack(planes, axis=2).clip(0, 255).astype(np.uint8))


def draw_template(generator: np.random.Generator) -> Image.Image:
    """Draw another face into the template of all portraits: hair, head and shoulders are the same pixels."""
    common = np.random.default_rng(0)
    image = _noise(common, 25.0, 1.0)
    pen = ImageDraw.Draw(image)
    pen.ellipse([60, 225, 260, 420], fill=(60, 80, 140))
    pen.ellipse([88, 30, 232, 200], fill=(70, 45, 30))
    pen.ellipse([100, 55, 220, 230], fill=(225, 180, 150))
    for number in range(60):
        left = 95 + common.uniform(0, 130)
        pen.line([left, 60, left + common.uniform(-12, 12), 35], fill=(40 + number, 30, 20), width=2)
    iris, lips = _color(generator), (200, *generator.integers(40, 120, 2).tolist())
    eye, mouth = generator.uniform(115, 135), generator.uniform(180, 200)
    for middle in (138, 182):
        pen.ellipse([middle - 13, eye - 8, middle + 13, eye + 8], fill="white")
        pen.ellipse([middle - 7, eye - 7, middle + 7, eye + 7], fill=iris)
        pen.line([middle - 15, eye - 16, middle + 15, eye - generator.uniform(12, 24)], fill=(50, 35, 25), width=5)
    half = generator.uniform(14, 28)
    pen.ellipse([160 - half, mouth - generator.uniform(4, 10), 160 + half, mouth + 8], fill=lips)
    pen.line([160, eye + 12, 160 - generator.uniform(2, 12), mouth - 22], fill=(180, 130, 105), width=4)
    return image


def draw_camera(generator: np.random.Generator) -> Image.Image:
    """Draw another object at the place where a fixed camera looks: the background has the same pixels."""
    image = Image.fromarray((128 + 40 * _clouds(np.random.default_rng(1), 1.2)).clip(0, 255).astype(np.uint8))
    image = image.convert("RGB")
    middle, radius = generator.uniform(0.4, 0.6, 2) * SIDE, generator.uniform(0.08, 0.14) * SIDE
    texture = 128 + 45 * _clouds(generator, 1.0)
    object_image = Image.fromarray(texture.clip(0, 255).astype(np.uint8)).convert("RGB")
    mask = Image.new("L", image.size)
    ImageDraw.Draw(mask).ellipse([*(middle - radius), *(middle + radius)], fill=255)
    image.paste(object_image, mask=mask)
    noise = generator.normal(0, 2, (SIDE, SIDE, 1))  # each exposure has its own
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


def draw_scene(generator: np.random.Generator) -> Image.Image:
    """Draw clouds with the spectrum of photographs, which look like nothing else."""
    planes = [128 + 45 * _clouds(generator, 1.3) for _ in range(3)]
    return Image.fromarray(np.stack(planes, axis=2).clip(0, 255).astype(np.uint8))


def _noise(generator: np.random.Generator, deviation: float, blur: float) -> Image.Image:
    pixels = generator.normal(128, deviation, (SIDE, SIDE)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(blur)).convert("RGB")


def _clouds(generator: np.random.Generator, power: float) -> np.ndarray:
    """Draw noise (320, 320) of deviation 1 whose amplitude falls with this power of its frequency."""
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.fftfreq(SIDE)[None]) * SIDE
    waves = generator.normal(size=(SIDE, SIDE)) + 1j * generator.normal(size=(SIDE, SIDE))
    found = np.fft.ifft2(waves / np.maximum(frequency, 1) ** power).real
    return (found - found.mean()) / found.std()


def _color(generator: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = generator.integers(60, 256, 3).tolist()
    return red, green, blue


def _store(image: Image.Image, kind: str, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return Image.open(file).convert("RGB")


def _crop(image: Image.Image, generator: np.random.Generator, share: float) -> Image.Image:
    width, height = round(image.width * (1 - share)), round(image.height * (1 - share))
    left, top = generator.integers(0, [image.width - width, image.height - height], endpoint=True).tolist()
    return image.crop((left, top, left + width, top + height))


Change = Callable[[Image.Image, np.random.Generator], Image.Image]
KINDS: dict[str, Callable[[np.random.Generator], Image.Image]] = {
    "shape before a plain background": draw_shape,
    "product before white": draw_product,
    "disc before white": draw_disc,
    "form with another name": draw_form,
    "X-ray of a chest": draw_x_ray,
    "single cell": draw_cell,
    "face in a template": draw_template,
    "object before a fixed camera": draw_camera,
    "scene": draw_scene,
}
CHANGES: dict[str, Change] = {
    "half size": lambda image, _: image.resize((image.width // 2, image.height // 2)),
    "square": lambda image, _: image.resize((224, 224)),
    "jpeg 30": lambda image, _: _store(image, "JPEG", 30),
    "webp 50": lambda image, _: _store(image, "WEBP", 50),
    "brighter": lambda image, _: ImageEnhance.Brightness(image).enhance(1.3),
    "darker": lambda image, _: ImageEnhance.Brightness(image).enhance(0.7),
    "cropped 5 %": lambda image, generator: _crop(image, generator, 0.05),
    "cropped 20 %": lambda image, generator: _crop(image, generator, 0.2),
    "mirrored": lambda image, _: ImageOps.mirror(image),
}
