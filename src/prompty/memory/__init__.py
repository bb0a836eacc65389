"""Where conversations are kept between turns."""
