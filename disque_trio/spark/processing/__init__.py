"""Works off jobs on Spark's executors: a function gets them, and what it says becomes of them."""
