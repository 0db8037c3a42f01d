"""What is known of who stands where and kept between plans, brought up to date where something has changed."""
