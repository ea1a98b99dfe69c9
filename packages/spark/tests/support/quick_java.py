"""How the tests start a JVM, and Spark in it."""

# Optimized compilation does not pay for such short jobs: it doubles the CPU time of a start.
# Verifying Spark's byte code takes an eighth of it. Without that compilation, Java reserves so
# little memory for compiled code that a thread is always busy to make room for more.
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -XX:ReservedCodeCacheSize=240m"
)
# For a JVM that another program starts.
ENVIRONMENT = {"JDK_JAVA_OPTIONS": OPTIONS}

# With only a few rows, planning and compiling a query is most of its work; then comes what tells a
# task what to do.
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.broadcast.compress": "false",
    "spark.shuffle.compress": "false",
}
# For a command line.
WORDS = tuple(word for pair in SETTINGS.items() for word in ("--conf", "=".join(pair)))
