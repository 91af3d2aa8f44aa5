"""Data that comes with the kit: real images and trained weights, read without TVM."""

from npu_kit.data.digits import DigitsData, load_digits_data, load_digits_parameters

__all__ = ["DigitsData", "load_digits_data", "load_digits_parameters"]
