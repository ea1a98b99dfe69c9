"""How the tests start a JVM."""

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
