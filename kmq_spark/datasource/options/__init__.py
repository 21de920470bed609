"""What a user may say: every option's name, its form, and what stands for it."""
