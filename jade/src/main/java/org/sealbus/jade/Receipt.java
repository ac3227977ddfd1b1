package org.sealbus.jade;

/** The acknowledgements that the publisher of a message waits for. The mesh guards it. */
final class Receipt {
    private int missing;
    private String failed;

    /** One more acknowledgement is to come. */
    void expect() {
        missing++;
    }

    void acknowledge() {
        missing--;
    }

    /** An acknowledgement will not come. */
    void fail(String why) {
        failed = failed == null ? why : failed;
        missing--;
    }

    boolean isComplete() {
        return missing <= 0;
    }

    /** Why an acknowledgement did not come; null if all came. */
    String failed() {
        return failed;
    }
}
