"""What makes pages and pictures of docs/, and what its site needs."""
